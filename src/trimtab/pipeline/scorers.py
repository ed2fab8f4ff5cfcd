"""The reward and the independent measures that the settings name."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.names import TINY_WORLD
from trimtab.pipeline.project import Project
from trimtab.pipeline.stages import reward_specs
from trimtab.scoring import Scorer, build_scorer
from trimtab.worlds.gold import GoldScorer

__all__ = ["measures", "reward"]


def reward(project: Project, preference: Scorer | None) -> Scorer:
    """What PPO maximises; `preference` None: the reward has no preference model in it."""
    available: dict[str, Scorer] = {} if preference is None else {"preference": preference}
    return build_scorer(project.config.ppo.reward, available, project.directory)


def measures(project: Project) -> list[Scorer]:
    """The independent measures, the deciding one first.

    Raises:
        TrimtabError: `gold` outside the tiny world, or a measure that the policy was trained on.
    """
    config = project.config
    available: Mapping[str, Scorer] = {"gold": GoldScorer()} if config.model.name == TINY_WORLD else {}
    for spec in config.eval.measures:
        if spec in reward_specs(project) or spec == "preference":
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"eval.measures names {spec!r}, which the policy was trained on",
                "name a measure that the reward does not contain; the trained score is shown beside it anyway",
            )
    return [build_scorer(spec, available, project.directory) for spec in config.eval.measures]
