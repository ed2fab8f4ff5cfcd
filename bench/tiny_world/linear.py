"""A linear preference model: ridge logistic regression on differences of features, fitted by Newton's method."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Linear"]

Floats = NDArray[np.float64]

RIDGE = 3.0


@dataclass(frozen=True)
class Linear:
    """Weights [d] and the curvature [d, d] of the penalised log-likelihood at them."""

    weights: Floats = field(default_factory=lambda: np.zeros(0))
    curvature: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def fit(cls, x: Floats, y: Floats, *, start: Floats | None = None, counts: Floats | None = None) -> Linear:
        """Fit P(first > second) = sigmoid(x w) to soft labels.

        Args:
            x: [n, d] features of the first minus those of the second response.
            y: [n] labels in [0, 1].
            start: [d] where to begin.
            counts: [n] how often each row counts.
        """
        w = np.zeros(x.shape[1]) if start is None else start.copy()
        c = np.ones(len(y)) if counts is None else counts
        curvature = RIDGE * np.eye(len(w))
        for _ in range(15):
            p = 0.5 * (1 + np.tanh(x @ w / 2))
            curvature = (x * (c * p * (1 - p) + 1e-6)[:, None]).T @ x + RIDGE * np.eye(len(w))
            step = np.linalg.solve(curvature, x.T @ (c * (p - y)) + RIDGE * w)
            w = w - step
            if np.abs(step).max() < 1e-4:
                break
        return cls(w, curvature)

    def refit(self, x: Floats, y: Floats, rng: np.random.Generator) -> Linear:
        """Fitted on as many rows, drawn with replacement."""
        counts = rng.multinomial(len(y), np.full(len(y), 1 / len(y))).astype(np.float64)
        return Linear.fit(x, y, start=self.weights, counts=counts)

    def posterior(self, rng: np.random.Generator, n: int) -> Floats:
        """[n, d] draws from the Gaussian approximation of the posterior (Laplace)."""
        root = np.linalg.cholesky(self.curvature)
        return self.weights + np.linalg.solve(root.T, rng.normal(size=(len(self.weights), n))).T
