"""Tensor formulas, each in one place: pure functions, no models, files, settings, random state or logging.

Dimension letters: B batch, T response tokens, V vocabulary, N reference responses a prompt, P pairs. A mask is boolean,
True = this position counts. Everything is computed in float32 whatever the dtype of the input; what stands in positions
that do not count, NaN included, reaches neither results nor gradients. A row whose mask is all False contributes
nothing; a mask that is all False is an error. Losses are to be minimised.

This file imports nothing: `trimtab.core.calibration` must load without torch.
"""
