"""From settings to objects: models, judges, scorers. The one place that knows which class a name stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from trimtab.config.schema import LabelConfig
from trimtab.data.filtering import as_human
from trimtab.data.pairs import read_pairs
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.budget import Budget
from trimtab.labeling.judges import load_panel
from trimtab.labeling.protocol import Judge
from trimtab.models.encoder import ScoreCodec, Start
from trimtab.models.heads import untie
from trimtab.models.loading import load_causal_lm, load_codec, pick_device
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.models.starts import load_backbone
from trimtab.models.tokens import TextCodec
from trimtab.pipeline.names import TINY_WORLD, model_name
from trimtab.pipeline.project import Project
from trimtab.preference.ensemble import load_preference
from trimtab.preference.model import PreferenceModel
from trimtab.runs.files import stable_hash
from trimtab.runs.run import Run
from trimtab.training.precision import Precision
from trimtab.training.world import World

__all__ = ["Workshop"]


@dataclass(frozen=True)
class Workshop:
    """What the stages of one run are made with."""

    project: Project
    run: Run
    world: World = field(default_factory=World.single)
    """The processes that train the policy together."""

    @cached_property
    def precision(self) -> Precision:
        """A fresh loss scale for every stage is right: stages share no optimiser."""
        config = self.project.config.model
        return Precision(config.dtype, pick_device(config.device))

    def base(self) -> tuple[CausalModel, TextCodec]:
        """The model that the settings name, frozen, before any training."""
        config = self.project.config.model
        if config.name == TINY_WORLD:
            return self._tiny_world()
        name = model_name(self.project, config.name)
        codec = load_codec(name, config.chat_template)
        model = load_causal_lm(name, config.dtype, config.device, layout=config.layout, codec=codec)
        return model, codec

    def _tiny_world(self) -> tuple[CausalModel, TextCodec]:
        from trimtab.worlds.model import build_model, build_tokenizer

        config = self.project.config
        hf = build_model(config.project.seed).to(self.precision.device, self.precision.torch_dtype)
        layout = config.model.layout
        if layout.head:
            untie(hf)
        model = CausalModel(hf, layout.boundary(int(hf.config.num_hidden_layers)), lora=layout.lora)
        model.requires_grad_(False)
        return model, TextCodec(build_tokenizer(), config.model.chat_template)

    def reference(self) -> tuple[CausalModel, TextCodec]:
        """The SFT model, frozen; the base model where there was nothing to fine-tune on."""
        return self._trained("sft") if self.project.fine_tunes else self.base()

    def preference_start(self) -> tuple[Start, ScoreCodec]:
        """What the preference model is trained from, frozen: its own backbone, or the reference."""
        config = self.project.config
        if config.preference.backbone is None:
            return self.reference()
        return load_backbone(
            model_name(self.project, config.preference.backbone), config.model.dtype, self.precision.device,
            chat=config.model.chat_template, layout=config.model.layout, layers=config.preference.layers,
            seed=config.project.seed,
        )  # fmt: skip

    def training_pairs(self) -> list[Pair]:
        """The labeled pairs that a preference model is trained and measured on, those of people at the end.

        Raises:
            TrimtabError: nothing is labeled yet.
        """
        config = self.project.config.preference
        path = self.run.artifact("label") / "pairs.jsonl"
        if config.data is None and not path.is_file():
            raise TrimtabError(
                ErrorKind.RUN,
                f"{self.run.path}: has no labeled pairs yet",
                "make them with: trimtab run PROJECT --until label; or name a file of pairs: preference.data",
            )
        pairs = read_pairs(path) if config.data is None else list(self.project.preference_pairs)
        return pairs + as_human(self.project.human_pairs, config.human_weight, {pair.id for pair in pairs})

    def policy(self, onto: CausalModel | None = None) -> tuple[CausalModel, TextCodec]:
        """The policy that was trained, frozen; what it has in common with `onto` is in memory once."""
        return self._trained(self.project.config.project.algorithm, onto)

    def adapters(self, role: str) -> torch.Generator:
        """What draws the new adapters of a role."""
        return torch_stream(self.project.config.project.seed, role, "adapters")

    def _trained(self, stage: str, onto: CausalModel | None = None) -> tuple[CausalModel, TextCodec]:
        config = self.project.config.model
        directory = str(self.run.artifact(stage) / "model")
        codec = load_codec(directory, config.chat_template)
        model = load_causal_lm(directory, config.dtype, config.device, layout=config.layout, onto=onto, codec=codec)
        return model, codec

    def preference_model(self, base: CausalModel | None = None) -> PreferenceModel:
        """The run's preference model or ensemble, on `base`'s weights as far as they are shared."""
        config = self.project.config.preference
        return load_preference(
            self.run.artifact("pm") / "model", self.precision, base, calibrated_score=config.calibrated_score,
            combine=config.combine, pessimism=config.pessimism, head_weights=config.head_weights,
        )  # fmt: skip

    def judges(self, budget: Budget | None = None) -> list[Judge]:
        """The judges that label, each in every wording."""
        config = self.project.config
        return load_panel(
            config.label, seed=config.project.seed, directory=self.project.directory, models=self.judge_model,
            budget=budget,
        )  # fmt: skip

    def judge(self) -> Judge:
        """The first of the judges that label."""
        return self.judges()[0]

    def judge_model(self, member: LabelConfig) -> tuple[str, Callable[[], tuple[CausalModel, TextCodec]]]:
        """What stands for the weights of a judge's model, and how to load it."""
        config, own = self.project.config.model, member.model

        def load() -> tuple[CausalModel, TextCodec]:
            if own is None:
                return self.reference()
            name = model_name(self.project, own)
            codec = load_codec(name, config.chat_template)
            return load_causal_lm(name, config.dtype, config.device, codec=codec), codec

        # Labels of a fine-tuned reference are labels of those weights: its stage's fingerprint stands for them.
        weights = own or f"reference {self.run.stage('sft').fingerprint}"
        return stable_hash([weights, self.project.model_stamp(own) if own else [], config.dtype]), load

    def save_model(self, model: CausalModel, codec: TextCodec, stage: str) -> Path:
        """Write a policy as a directory that plain transformers loads."""
        directory = self.run.artifact(stage) / "model"
        model.save_pretrained(directory, pad_id=codec.pad_id)
        codec.save(directory)
        return directory

    def use_threads(self) -> None:
        threads = self.project.config.project.threads
        if threads:
            torch.set_num_threads(threads)
