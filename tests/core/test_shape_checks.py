"""The annotations of core are checked while the tests run."""

import jaxtyping
import pytest
import torch

from trimtab.core.advantages import gae
from trimtab.core.losses import policy_loss
from trimtab.core.masked import masked_mean
from trimtab.core.rewards import token_rewards


def test_a_mask_that_is_not_boolean_is_refused() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        masked_mean(torch.ones(2, 3), torch.ones(2, 3))


def test_a_mask_of_another_shape_is_refused_although_it_would_broadcast() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        masked_mean(torch.ones(2, 3), torch.ones(1, 3, dtype=torch.bool))


def test_scores_a_token_are_refused_where_scores_a_response_belong() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(jaxtyping.TypeCheckError):
        token_rewards(torch.ones(2, 3), torch.ones(2, 3), mask, 0.1)


def test_values_a_response_are_refused_where_values_a_token_belong() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(jaxtyping.TypeCheckError):
        gae(torch.ones(2, 3), torch.ones(2, 1), mask, 1.0, 0.95)


def test_advantages_that_would_broadcast_are_refused() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(jaxtyping.TypeCheckError):
        policy_loss(torch.ones(2, 3), torch.ones(2, 3), torch.ones(1, 3), mask, 0.2)
