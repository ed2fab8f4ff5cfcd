"""PPO's numbers against TRL's: functions on random inputs, and whole iterations of its trainer on the same tokens.

    python -m bench.parity.trl --trl DIR [--seeds 1] [--json FILE]

Needs TRL 1.12, the last release with PPO (pip download --no-deps trl==1.12.0, unzipped to DIR), datasets, accelerate.
Without --trl only our fast forms are compared with slow ones. All in float32 on the CPU, one thread. Rows with a bound
must keep it, else the exit code is 1; rows that are "told" say by how much the two differ on purpose, and why stands
below the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.parity import functions, models, own, trainer
from bench.parity.table import Rows, show

DIFFERENCES = """\
Where the two differ on purpose:
- Whitening: TRL divides squared deviations by n - 1, we by n. Compared with TRL's divisor laid over ours; as it is,
  ours is sqrt(n / (n - 1)) times as large (1/2 % for 96 tokens), for every token alike.
- A response that has ended: TRL puts the score on the position after the EOS, which has a value of its own but no KL
  and no policy loss, and learns a value there; ours ends with the EOS. Compared with that position laid over ours.
- Value loss: TRL takes half of the mean square, times vf_coef = 0.1; we take the mean square. Compared with
  value_coef = vf_coef / 2 under a joint clip. Ours clips values only with value_clip_range; TRL always does.
- Gradient clip: TRL's loop never applies max_grad_norm; ours does. Compared with ours out of reach.
- Temperature: TRL divides logits by temperature + 1e-7.
- A sampled pad token: TRL takes lengths and attention masks from token ids, so it ends the response there (or empties
  it). Ours takes them from the sampler. Only rollouts that TRL reads right are compared.
- Means that TRL logs (approx. KL, ratio, entropy) are over padding, too. Only full responses are compared by entropy.
- k3: ours holds log-ratios within 20 before they are exponentiated; TRL's overflows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", default="", help="directory that trl was unzipped to")
    parser.add_argument("--seeds", type=int, default=1, help="rollouts of each case of the trainer")
    parser.add_argument("--inputs", type=int, default=6, help="random inputs of each shape for a function")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TRL_EXPERIMENTAL_SILENCE="1")
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    parts: list[tuple[str, Callable[[Rows], object]]] = [
        ("Fast forms against slow ones", partial(own.compare, seeds=options.inputs)),
    ]
    if options.trl:
        sys.path.insert(0, options.trl)
        import trl

        parts += [
            (
                f"Functions of TRL {trl.__version__}",
                partial(functions.compare, seeds=options.inputs, scalar=partial(models.scalar, functions.VOCABULARY)),
            ),
            (f"Iterations of TRL {trl.__version__}'s PPOTrainer", partial(trainer.compare, seeds=options.seeds)),
        ]
    print("Difference: largest |ours - theirs| / max(1, largest |theirs|).")
    results: dict[str, list[dict[str, object]]] = {}
    failed = []
    for title, compare in parts:
        rows = Rows()
        told = compare(rows)
        print(f"\n{title}\n\n{show(list(rows.rows.values()))}", flush=True)
        if isinstance(told, list):
            print("\n" + "\n".join(f"  {line}" for line in told))
        failed += rows.failed
        results[title] = [asdict(row) | {"verdict": row.verdict} for row in rows.rows.values()]
    if options.trl:
        apart = trainer.their_clip()
        print(
            f"\n{DIFFERENCES}\n  TRL's weights after an update under max_grad_norm 1e9 and 1e-6 differ by {apart:.1e}."
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    if failed:
        print(f"\n{len(failed)} beyond their bound: {', '.join(row.quantity for row in failed)}", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
