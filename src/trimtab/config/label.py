"""Settings of the judges and of how their verdicts become labels."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from trimtab.config.fields import Count, NonNegative, Positive, Section

__all__ = ["JudgeTable", "LabelConfig"]


class JudgeTable(Section):
    """One judge of several; what it leaves out is as in the `label` section."""

    judge: Annotated[str, Field(min_length=1)] | None = None
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    input_price: NonNegative | None = None
    output_price: NonNegative | None = None

    @model_serializer(mode="wrap")
    def _given(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if value is not None}


class LabelConfig(Section):
    """The judges and how their verdicts become labels."""

    # who is asked
    judge: Annotated[str, Field(min_length=1)] = "likelihood"
    """local (A/B letters), openai (any OpenAI-compatible server), likelihood, construction (contrast pairs: the reading
    wins), simulated (tiny world), or a plugin's name."""
    model: str | None = None
    """The judge's model: a local directory or hub id, for openai the server's name of it; none: the reference
    policy."""
    simulated: Literal["faithful", "blind"] = "faithful"
    """Which of the two simulated judges (tiny world)."""
    base_url: str | None = None
    """openai: address of the server, as in http://localhost:8000/v1; none: OpenAI's own."""
    api_key_env: str | None = None
    """openai: name of the environment variable that holds the key; none: no key is sent."""
    judges: dict[str, JudgeTable] = {}
    """Several judges, by name: tables with judge, model, base_url, api_key_env, input_price, output_price; what a table
    leaves out is as in this section."""
    # what is asked
    choose: Literal["all", "random", "active"] = "all"
    """Which pairs get a label: all; random: budget_pairs of them, spread over the prompts; active: in rounds, those of
    which a bag of words that learns from the labels so far is least sure."""
    budget_pairs: Count | None = None
    """How many pairs get a label with choose = "random" or "active"; the others are not trained on."""
    both_orders: bool = True
    """Ask with either response first and average the two verdicts."""
    samples: Count = 1
    """Votes in each order."""
    templates: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] = ["plain"]
    """Wordings of the question, each asked: plain, direct, careful, or a .toml file of one's own (local, openai)."""
    principles: Literal["all", "sampled", "each"] = "all"
    """all: by the whole constitution at once; sampled: by one principle a vote, drawn by weight; each: by every
    principle in turn, kept as scores of their own and averaged by weight."""
    rationale: bool = False
    """openai, local: the judge reasons first, then gives its verdict."""
    temperature: NonNegative = 0.0
    """openai, local with rationale: sampling temperature of the judge."""
    max_new_tokens: Count | None = None
    """openai, local with rationale: longest answer in tokens; none: 16, with a rationale 512 (local: 128)."""
    # how verdicts become labels
    aggregation: Literal["mean", "dawid-skene"] = "mean"
    """How votes become a label: their mean, or weighed by how well the judges agree (at least three votes)."""
    abstain: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Pairs with |P(first) - .5| below this are not used for training."""
    audit_sample: Annotated[int, Field(ge=0)] = 0
    """So many labels, drawn by chance, are put before the likelihood judge of the reference too; how often it agrees
    stands in the report. Changes no label; needs a chat model and readings in the constitution."""
    # how fast, and for how much
    batch_size: Count = 16
    """Judge calls at a time."""
    timeout_s: Positive = 120.0
    """openai: longest time for one answer, all retries included, in seconds."""
    requests_per_minute: Count | None = None
    """openai: calls started a minute, retries included; none: no limit."""
    tokens_per_minute: Count | None = None
    """openai: tokens asked for a minute; none: no limit."""
    input_price: NonNegative | None = None
    """openai: price of a million prompt tokens, in any currency."""
    output_price: NonNegative | None = None
    """openai: price of a million completion tokens."""
    max_cost: NonNegative | None = None
    """Most that one command may spend on judges, in the currency of the prices."""
    max_calls: Count | None = None
    """Most calls to judges that one command may make, retries included."""

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if messages := [message for broken, message in self._broken_rules() if broken]:
            raise ValueError("\n".join(messages))
        return self

    def members(self) -> dict[str, LabelConfig]:
        """The judges by name, each as the section that it would have alone."""
        if not self.judges:
            return {self.judge: self}
        # the whole has been checked, and a part of it breaks no rule
        return {
            name: self.model_copy(update={"judges": {}, **table.model_dump()}) for name, table in self.judges.items()
        }

    def _broken_rules(self) -> list[tuple[bool, str]]:
        members = self.members().values()
        asked = {member.judge for member in members}
        named = len({(m.judge, m.model, m.base_url, m.simulated) for m in members})
        unpriced = [m for m in members if m.judge == "openai" and m.input_price is None and m.output_price is None]
        return [
            (named < len(self.judges), "two of label.judges are the same judge: they would give the same verdicts"),
            ("openai" in asked and any(m.judge == "openai" and not m.model for m in members),
             'judge = "openai" needs model: the name that the server knows it by'),
            ((self.choose == "all") != (self.budget_pairs is None),
             'choose = "random" and "active" need budget_pairs, the number of pairs that get a label; "all" has none'),
            (self.audit_sample > 0 and asked == {"likelihood"} and all(m.model is None for m in members),
             'audit_sample asks the likelihood judge, which is here the judge itself: set it to 0'),
            (self.max_cost is not None and bool(unpriced),
             'max_cost needs input_price or output_price of every judge = "openai"'),
            (self.samples > 1 and self.temperature == 0 and bool(asked & {"openai", "local"}),
             f"samples = {self.samples} at temperature = 0 would ask the same question {self.samples} times for the "
             "same answer: raise temperature, or take several templates instead"),
            (self.samples > 1 and not self.rationale and "local" in asked,
             'samples > 1: judge = "local" without rationale reads probabilities and has nothing to repeat: take '
             "several templates instead"),
            (self.samples > 1 and bool(asked & {"likelihood", "construction"}),
             "samples > 1: the judges likelihood and construction have nothing to repeat"),
            (self.principles != "all" and "construction" in asked,
             'judge = "construction" knows only the principle that a pair was sampled under: principles must be "all"'),
        ]  # fmt: skip
