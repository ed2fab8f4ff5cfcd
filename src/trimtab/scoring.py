"""Scorers: anything that gives each response a number, higher = better.

A scorer is named in the settings: `preference` and other names that the caller hands in, `rule:...`, or
`module:function` of the user's project; a table of such names with weights is a mixture. Whatever a scorer returns goes
through `checked_scores`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import numbers
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.stats import text as text_measures

if TYPE_CHECKING:
    from trimtab.data.records import Prompt, Response

__all__ = [
    "RULES",
    "Borrowing",
    "FunctionScorer",
    "MixtureScorer",
    "RuleScorer",
    "Scorer",
    "Telling",
    "Uncertain",
    "build_scorer",
    "checked_scores",
    "disagreement",
    "lend",
    "signals",
]

Scores = NDArray[np.float64]


@runtime_checkable
class Scorer(Protocol):
    """Scores responses."""

    @property
    def name(self) -> str:
        """What messages and the signal `score/<name>` call it."""
        ...

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Scores:
        """Scores float64[B] of B responses, one prompt each."""
        ...


@runtime_checkable
class Uncertain(Protocol):
    """A scorer of several members, which says how far they are apart."""

    def disagreement(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Scores:
        """Standard deviation of a response's score over the members, float64[B]."""
        ...


def disagreement(scorer: Scorer, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Scores | None:
    """How far the members of a scorer are apart, float64[B], in units of its score; None where it has none.

    Of a mixture, the sum over its scorers with members, times the size of their weights.
    """
    if isinstance(scorer, MixtureScorer):
        parts = [(disagreement(part, prompts, responses), abs(weight)) for part, weight in scorer.scorers]
        found = [weight * spread for spread, weight in parts if spread is not None]
        return np.sum(found, axis=0) if found else None
    return scorer.disagreement(prompts, responses) if isinstance(scorer, Uncertain) else None


@runtime_checkable
class Telling(Protocol):
    """A scorer that knows more about a batch than its scores."""

    def signals(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Mapping[str, float]:
        """Figures about responses that were just scored, by the name of the signal that they are logged as."""
        ...


@runtime_checkable
class Borrowing(Protocol):
    """A scorer whose lower layers may be the policy's own: it takes their output where it is known."""

    def borrow(self, role: Any, dtype: str, kept: Any) -> None:
        """From now on look the shared layers' output up in `kept`, if they are those of `role` and it computes in
        `dtype` as well; None: no longer."""
        ...


def lend(scorer: Scorer, role: Any, dtype: str, kept: Any) -> None:
    """Offer the output of a model's shared layers to a scorer, or to each of a mixture.

    Args:
        role: the model.
        dtype: what its layers computed in.
        kept: where the output is looked up; None: take it back.
    """
    for part in [s for s, _ in scorer.scorers] if isinstance(scorer, MixtureScorer) else [scorer]:
        if isinstance(part, Borrowing):
            part.borrow(role, dtype, kept)


def signals(scorer: Scorer, prompts: Sequence[Prompt], responses: Sequence[Response]) -> dict[str, float]:
    """What a scorer has to say about a batch that it has just scored, beside the scores, by name of the signal.

    `score/disagreement` of one with members; whatever a `Telling` one tells; of a mixture `score/<name>` for each of
    its scorers, and what these tell (of two that tell the same, the first).
    """
    found: dict[str, float] = {}
    if isinstance(scorer, MixtureScorer):
        found |= {f"score/{name}": float(np.mean(x)) for name, x in scorer.parts(prompts, responses).items()}
    spread = disagreement(scorer, prompts, responses)
    if spread is not None:
        found["score/disagreement"] = float(spread.mean())
    for part in [s for s, _ in scorer.scorers] if isinstance(scorer, MixtureScorer) else [scorer]:
        told = part.signals(prompts, responses) if isinstance(part, Telling) else {}
        found |= {key: value for key, value in told.items() if key not in found}
    return found


def checked_scores(scorer: Scorer, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Scores:
    """The scores float64[B] of a scorer, if they are scores.

    Raises:
        TrimtabError: their number is not B, or one is no finite number; names the scorer and the first such response.
        ValueError: there are not as many prompts as responses.
    """
    if len(prompts) != len(responses):
        raise ValueError(f"{len(prompts)} prompts for {len(responses)} responses")
    return _as_scores(scorer.score(prompts, responses), len(responses), scorer.name)


def _as_scores(values: object, n: int, name: str) -> Scores:
    """`values` as float64[n], or an error that names the scorer."""
    try:
        if isinstance(values, Mapping | Set | str | bytes):
            raise TypeError
        items = [_detached(item) for item in _detached(values)]
        array = _array(items)
    except (TypeError, ValueError, RuntimeError):
        raise TrimtabError(
            ErrorKind.REWARD, f"scorer {name}: returned a {type(values).__name__}, not {n} numbers, one a response"
        ) from None
    if array.shape != (n,):
        raise TrimtabError(
            ErrorKind.REWARD, f"scorer {name}: returned an array of shape {array.shape} for {n} responses"
        )
    if n == 0:
        return np.empty(0)
    if array.dtype.kind in "biuf":
        scores = array.astype(np.float64)
    else:
        scores = np.array([_number(item, f"scorer {name}: the score of response {i}") for i, item in enumerate(items)])
    finite = np.isfinite(scores)
    if not finite.all():
        wrong = int(np.argmin(finite))
        raise TrimtabError(
            ErrorKind.REWARD,
            f"scorer {name}: the score of response {wrong} is {scores[wrong]} ({n - int(finite.sum())} of {n} are not "
            "finite)",
            "A score must be a finite number; an empty response is scored too.",
        )
    return scores


def _detached(value: Any) -> Any:
    """A torch tensor as a NumPy array of float64, whatever its device, dtype and gradient; all else as it is."""
    return value.detach().cpu().double().numpy() if hasattr(value, "detach") else value


def _array(items: list[Any]) -> NDArray[Any]:
    try:
        return np.asarray(items)
    except OverflowError:  # floats and a whole number that is too large to be one
        array = np.empty(len(items), object)
        array[:] = items
        return array


def _number(item: object, what: str) -> float:
    if isinstance(item, np.bool_):
        return float(item)
    if not isinstance(item, numbers.Real):
        raise TrimtabError(ErrorKind.REWARD, f"{what} is {reprlib.repr(item)}, not a number")
    try:
        return float(item)
    except OverflowError:
        digits = int(math.log10(2) * cast(int, math.trunc(item)).bit_length()) + 1
        raise TrimtabError(
            ErrorKind.REWARD, f"{what} is a number of about {digits} digits, too large for a float"
        ) from None


# functions of the user


class FunctionScorer:
    """`module:function` of the user: called with the prompts and the responses as lists of texts, returns B numbers."""

    def __init__(self, name: str, function: Callable[[list[str], list[str]], Any]) -> None:
        self.name = name
        self._function = function

    @classmethod
    def load(cls, spec: str, directory: Path | str | None = None) -> FunctionScorer:
        """Import the function; `directory` (the project) goes before other places that modules are found in.

        Raises:
            TrimtabError: there is no such module or function, its import fails, or it does not take two arguments.
        """
        module_name, _, function_name = spec.partition(":")
        if not all(part.isidentifier() for part in [*module_name.split("."), function_name]):
            raise TrimtabError(ErrorKind.CONFIG, f"scorer {spec!r}: is not of the form module:function")
        module = _import(module_name, spec, None if directory is None else Path(directory).resolve())
        function = getattr(module, function_name, None)
        if not callable(function):
            near = difflib.get_close_matches(function_name, [k for k, v in vars(module).items() if callable(v)], n=1)
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"scorer {spec}: {getattr(module, '__file__', module_name)} has no function {function_name!r}",
                f"Did you mean {module_name}:{near[0]}?" if near else "",
            )
        if not _takes_two(function):
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"scorer {spec}: {function_name}{inspect.signature(function)} cannot be called with two arguments",
                "It is called as function(prompts, responses), two lists of texts, and returns a number a response.",
            )
        # Trimtab's own go by a short name in signals and reports. A project's go by their spec, which cannot clash.
        own = module_name.split(".")[0] == "trimtab"
        return cls(getattr(function, "label", spec) if own else spec, function)

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Scores:
        """Call the function.

        Raises:
            TrimtabError: it raised an exception, ended the program, or returned something that is not B finite numbers.
        """
        texts = [p.text for p in prompts], [r.text for r in responses]
        try:
            with _prints_to_stderr():
                values = self._function(*texts)
                if isinstance(values, Iterator):  # the function's own code runs while it is read
                    values = list(values)
        except TrimtabError as error:  # says itself what helps
            raise TrimtabError(error.kind, f"scorer {self.name}: {error.message}", error.hint) from error
        except (Exception, SystemExit) as error:
            raise TrimtabError(
                ErrorKind.REWARD,
                f"scorer {self.name}: {type(error).__name__}: {error} ({_where(error)})",
                "This exception came out of the scoring function.",
            ) from error
        return _as_scores(values, len(responses), self.name)


_from_projects: dict[str, Path] = {}
"""Top-level modules imported from a project, with the project: another project may have one of the same name."""


def _import(name: str, spec: str, directory: Path | None) -> ModuleType:
    if directory is not None:
        _make_way(name.split(".")[0], spec, directory)
    with _path_first(directory), _prints_to_stderr():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = f"there is no module {error.name!r}" + (f" in {directory} or" if directory else "")
            raise TrimtabError(ErrorKind.CONFIG, f"scorer {spec}: {missing} among the installed ones") from error
        except (Exception, SystemExit) as error:
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"scorer {spec}: importing {name} failed: {type(error).__name__}: {error} ({_where(error)})",
            ) from error


def _make_way(top: str, spec: str, directory: Path) -> None:
    """Forget a module of this name that comes from elsewhere, where the project has one or another project had."""
    here = (directory / f"{top}.py").is_file() or (directory / top).is_dir()
    if here and (top in sys.stdlib_module_names or top == "trimtab"):
        raise TrimtabError(
            ErrorKind.CONFIG, f"scorer {spec}: {directory / top} has the name of another module", "Rename the file."
        )
    if _from_projects.get(top) != directory and (here or top in _from_projects):
        for key in [k for k in sys.modules if k == top or k.startswith(f"{top}.")]:
            del sys.modules[key]
        _from_projects.pop(top, None)
    if here:
        _from_projects[top] = directory


@contextmanager
def _path_first(directory: Path | None) -> Iterator[None]:
    if directory is None:
        yield
        return
    entry = str(directory)
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(entry)


def _prints_to_stderr() -> AbstractContextManager[object]:
    """What a user's code prints goes to stderr: the program's own output, which may be JSON, stays clean."""
    return redirect_stdout(sys.stderr)


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-ins have none
        return True
    try:
        signature.bind([], [])
    except TypeError:
        return False
    return True


def _where(error: BaseException) -> str:
    """File and line that an exception comes from."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}" if trace is not None else "unknown place"


# rules

Rule = Callable[["Response"], float]


def _rule_length(argument: str) -> Rule:
    return lambda r: float(text_measures.length(r.text))


def _rule_repetition(argument: str) -> Rule:
    return lambda r: text_measures.repetition_rate(r.text)


def _rule_finished(argument: str) -> Rule:
    return lambda r: float(r.finished)


def _rule_words(argument: str) -> Rule:
    lexicon = [word.strip() for word in argument.split(",") if word.strip()]
    if not lexicon:
        raise TrimtabError(ErrorKind.CONFIG, "scorer rule:words: names no words", "Such as rule:words=please,thanks.")
    return lambda r: text_measures.lexicon_rate(r.text, lexicon)


RULES: dict[str, tuple[Callable[[str], Rule], bool, str]] = {
    "length": (_rule_length, False, "number of words"),
    "repetition": (_rule_repetition, False, "share of repeated three-word runs, 0 to 1: give it a negative weight"),
    "finished": (_rule_finished, False, "1 if the response ended with an EOS token of its own, else 0"),
    "words": (_rule_words, True, "share of words that are in the list, 0 to 1: rule:words=please,thanks"),
}
"""Built-in scorers `rule:<name>` or `rule:<name>=<argument>`: maker, whether it takes an argument, meaning."""


class RuleScorer:
    """`rule:<name>`, or `rule:<name>=<argument>`: see `RULES`."""

    def __init__(self, spec: str) -> None:
        kind, _, rest = spec.partition(":")
        rule, equals, argument = rest.partition("=")
        if kind != "rule" or rule not in RULES:
            raise TrimtabError(ErrorKind.CONFIG, f"scorer {spec}: there is no such rule", _known(rest, {}))
        make, takes, _ = RULES[rule]
        if bool(equals) != takes:
            need = f"needs an argument, as in rule:{rule}=..." if takes else "takes no argument"
            raise TrimtabError(ErrorKind.CONFIG, f"scorer {spec}: the rule {need}")
        self.name = spec
        self._rule = make(argument)

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Scores:
        """The rule's value for each response."""
        return np.array([self._rule(r) for r in responses], np.float64)


# mixtures


class MixtureScorer:
    """The weighted sum of several scorers."""

    name = "mixture"

    def __init__(self, scorers: Sequence[tuple[Scorer, float]]) -> None:
        if not scorers:
            raise ValueError("a mixture of no scorers")
        for scorer, weight in scorers:
            if not math.isfinite(weight):
                raise TrimtabError(ErrorKind.CONFIG, f"scorer {scorer.name}: its weight is {weight}, not finite")
        self.scorers = tuple((scorer, float(weight)) for scorer, weight in scorers)
        self._last: tuple[tuple[Any, ...], dict[str, Scores]] | None = None

    def parts(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> dict[str, Scores]:
        """Checked scores of each scorer, before weights; asked again for the same batch, the same arrays."""
        batch = (*prompts, *responses)
        if self._last is None or self._last[0] != batch:
            found = {s.name: checked_scores(s, prompts, responses) for s, _ in self.scorers}
            self._last = (batch, found)
        return dict(self._last[1])

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> Scores:
        """The weighted sums."""
        parts = self.parts(prompts, responses)
        total = np.zeros(len(responses))
        for scorer, weight in self.scorers:
            total += weight * parts[scorer.name]
        return total


def build_scorer(
    spec: str | Mapping[str, float], available: Mapping[str, Scorer], directory: Path | str | None = None
) -> Scorer:
    """The scorer that a setting names.

    Args:
        spec: a name in `available`, `rule:name`, `module:function`, or a table of these with weights.
        available: scorers that the caller has, by name, such as `preference`.
        directory: the project, where modules are looked for first.

    Raises:
        TrimtabError: there is no such scorer; names it, and what there is.
    """
    if isinstance(spec, Mapping):
        return MixtureScorer([(build_scorer(name, available, directory), weight) for name, weight in spec.items()])
    if spec in available:
        return available[spec]
    if spec.startswith("rule:"):
        return RuleScorer(spec)
    if ":" in spec:
        return FunctionScorer.load(spec, directory)
    raise TrimtabError(ErrorKind.CONFIG, f"scorer {spec!r}: there is none of this name here", _known(spec, available))


def _known(name: str, available: Mapping[str, Scorer]) -> str:
    names = [*available, *(f"rule:{rule}" + "=..." * takes for rule, (_, takes, _) in RULES.items())]
    near = difflib.get_close_matches(name, [n.removeprefix("rule:").removesuffix("=...") for n in names], n=1)
    return (f"Did you mean {near[0]!r}? " if near else "") + f"There are {', '.join(names)}, and module:function."
