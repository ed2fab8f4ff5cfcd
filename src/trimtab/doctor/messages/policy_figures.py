"""Figures about one series, said by many findings."""

from __future__ import annotations

from trimtab.doctor.messages import Text

__all__ = ["MESSAGES"]

MESSAGES: dict[str, Text] = {
    # levels
    "figure.ends": Text(
        "{name}: {early} over the first fifth of the log, {late} over the last",
        "{name}：日志前五分之一为 {early}，后五分之一为 {late}",
    ),
    "figure.start-end": Text("{name} began at {first} and is {late} now", "{name} 起初为 {first}，现为 {late}"),
    "figure.last": Text("{name} is {value}", "{name} 为 {value}"),
    "figure.first": Text("{name} is {value} at the first log point", "{name} 在第一个记录点为 {value}"),
    "figure.above": Text(
        "{name} has been above {bound} since step {step}; its late median is {late}",
        "{name} 自第 {step} 步起高于 {bound}，末段中位数为 {late}",
    ),
    "figure.below": Text("{name} is {late}, below {bound}", "{name} 为 {late}，低于 {bound}"),
    "figure.before": Text("{name} was {value} just before, at step {step}", "此前（第 {step} 步）{name} 为 {value}"),
    "figure.floor": Text(
        "{name} has never left its floor: {late} over {rows} log points",
        "{name} 从未离开下限：{rows} 个记录点均约为 {late}",
    ),
    # changes
    "figure.trend": Text(
        "{name} changed by {change} over the log (95 % interval {low} to {high}, p = {p})",
        "{name} 全程变化 {change}（95% 区间 {low} 至 {high}，p = {p}）",
    ),
    "figure.peak": Text(
        "{name} was at its best, {peak}, at step {step} and is {late} now",
        "{name} 在第 {step} 步达到最佳值 {peak}，现为 {late}",
    ),
    "figure.trough": Text(
        "{name} was lowest, {least}, at step {step} and is {late} now",
        "{name} 在第 {step} 步最低，为 {least}，现为 {late}",
    ),
    "figure.since-then": Text(
        "{name} went from {then} to {late} in the same time (from step {at})",
        "同一时期（自第 {at} 步）{name} 从 {then} 变为 {late}",
    ),
    "figure.excerpt": Text(
        "{name} differs by {change} between the two halves of {rows} rows over {steps} steps; rows scatter by {spread}",
        "{rows} 行（跨 {steps} 步）前后两半的 {name} 相差 {change}，而行间波动为 {spread}",
    ),
    "figure.factor": Text(
        "{name} went from {low} to {end}: {factor} times", "{name} 从 {low} 变为 {end}，为原来的 {factor} 倍"
    ),
    "figure.doubling": Text(
        "{name} more than doubled twice within ten log points: {long_before}, {before}, {now}",
        "{name} 在十个记录点内两次翻倍以上：{long_before}、{before}、{now}",
    ),
    "figure.least-gap": Text(
        "{name} of {loss} means at least {least:.0%} right on the training pairs, against {held:.0%} held out",
        "{name} 为 {loss}，说明训练对至少有 {least:.0%} 判对，留出对只有 {held:.0%}",
    ),
    "figure.swings": Text(
        "{name} fell by {depth} and came back, {count} times; its whole range is {span}",
        "{name} 先跌 {depth} 再回升，共 {count} 次；全程范围为 {span}",
    ),
    "figure.spikes": Text(
        "{name}: {count} spikes, the highest {highest}, against a median of {middle}",
        "{name} 出现 {count} 次尖峰，最高 {highest}，中位数为 {middle}",
    ),
    # counts of rows
    "figure.rows-zero": Text("{name} is exactly 0 in {rows} of {of} rows", "{of} 行中有 {rows} 行的 {name} 恰为 0"),
    "figure.rows-nan": Text(
        "{name} is {first} from step {step}: no number in {rows} of {of} rows",
        "{name} 自第 {step} 步起为 {first}：{of} 行中有 {rows} 行不是有效数值",
    ),
    "figure.rows-above": Text(
        "{name} is above {bound} in {rows} of {of} rows; the highest is {value}",
        "{of} 行中有 {rows} 行的 {name} 高于 {bound}，最高 {value}",
    ),
    "figure.rows-below": Text(
        "{name} is below {bound} in {rows} of {of} rows; {value} at step {step}",
        "{of} 行中有 {rows} 行的 {name} 低于 {bound}，第 {step} 步为 {value}",
    ),
    "figure.rows-ratio": Text(
        "{name} is out of bounds in {rows} of {of} rows; {value} at step {step}",
        "{of} 行中有 {rows} 行的 {name} 越界，第 {step} 步为 {value}",
    ),
    "figure.rows-no-eos": Text(
        "{name} is {value}: no response ends by itself in {rows} of {of} rows",
        "{name} 为 {value}：{of} 行中有 {rows} 行没有任何回复自行结束",
    ),
    "figure.first-ratio": Text(
        "{name} is off by up to {worst} in {rows} of {of} rows, before any update",
        "尚未更新时，{of} 行中有 {rows} 行的 {name} 已偏离，最多 {worst}",
    ),
    # one series against another
    "figure.against": Text(
        "{name} stays at {late}, while the scores vary by no more than a variance of {variance}",
        "{name} 停在 {late}，而得分的方差不超过 {variance}",
    ),
    "figure.share": Text(
        "the KL penalty, {beta} x {late}, is {share:.0%} of the scores' spread of {spread}",
        "KL 惩罚 {beta} × {late} 占得分离散度 {spread} 的 {share:.0%}",
    ),
    "figure.share-groups": Text(
        "{name}: in {level:.0%} of the prompts all responses score the same",
        "{name}：{level:.0%} 的提示下所有回复得分相同",
    ),
    "figure.length-share": Text(
        "from batch to batch the score follows the length (rank correlation {r}): {share:.0%} of its gain",
        "各批次间得分随长度变化（秩相关 {r}），由此可解释得分增幅的 {share:.0%}",
    ),
    "figure.deaf": Text(
        "{name} stays at {late} (it began at {early}) though the learning rate fell from {rate} to {tail}",
        "学习率从 {rate} 降到 {tail}，{name} 却仍为 {late}（起初 {early}）",
    ),
    "figure.batch-noise": Text(
        "{name} jumps by {noise} from batch to batch: {ratio} of the spread of single responses, {spread}",
        "{name} 在批次间跳动 {noise}，达到单条回复离散度 {spread} 的 {ratio} 倍",
    ),
    "figure.equal": Text(
        "{name} equals {score} in {share:.0%} of the rows that can tell ({rows} of {of})",
        "在可判断的行中，{share:.0%} 的 {name} 等于 {score}（{of} 行中的 {rows} 行）",
    ),
    "figure.pinned": Text(
        "{name} is {middle} give or take {sigma} over {rows} batches of different prompts",
        "{name} 在 {rows} 个不同提示的批次上都是 {middle}，波动仅 {sigma}",
    ),
    "figure.gap": Text(
        "{name} is {train} at the end, {held} on held-out pairs: {gap} apart",
        "{name} 末段为 {train}，留出数据上为 {held}，相差 {gap}",
    ),
    "figure.gap-grows": Text(
        "{name} was ahead of {fresh} by {first} at first and by {late} at the end",
        "{name} 起初领先 {fresh} {first}，末段领先 {late}",
    ),
    "figure.accuracy": Text("{name} ends at {level}", "{name} 最终为 {level}"),
    "figure.interval": Text("its 95 % interval is {low} to {high}", "其 95% 区间为 {low} 至 {high}"),
    "figure.share-z": Text(
        "{name} is {share} over {n} (z = {z} against one half)", "{name} 为 {share}，样本 {n}（相对一半 z = {z}）"
    ),
    "figure.skip-rate": Text("{rate:.0%} of the updates are skipped ({name})", "{rate:.0%} 的更新被跳过（{name}）"),
    # the log itself
    "figure.impossible-entropy": Text(
        "{name} is {value} at step {step}, and entropy cannot be negative ({rows} of {of} rows)",
        "{name} 在第 {step} 步为 {value}，而熵不可能为负（{of} 行中的 {rows} 行）",
    ),
    "figure.impossible-explained": Text(
        "{name} is {value}, and explained variance cannot exceed 1", "{name} 为 {value}，而解释方差不可能超过 1"
    ),
    "figure.impossible-fraction": Text(
        "{name} is {value}, outside 0 to 1, in {rows} of {of} rows",
        "{of} 行中有 {rows} 行的 {name} 超出 0 到 1，例如 {value}",
    ),
    "figure.impossible-spread": Text("{name} is {value}: it cannot be negative", "{name} 为 {value}，而它不可能为负"),
    "figure.impossible-kl": Text(
        "{name} is {value}, and the estimator it is logged with cannot be negative",
        "{name} 为 {value}，而所用的估计量不可能为负",
    ),
    "figure.impossible-clip": Text(
        "{name} is {value} while {kl} is 0: nothing has moved, so nothing can be clipped",
        "{name} 为 {value}，而 {kl} 为 0：策略未动，不可能有裁剪",
    ),
    "figure.impossible-clip-dead": Text(
        "{name} is {value} while no advantage differs from 0: nothing pushes a ratio out of its band",
        "{name} 为 {value}，而所有优势均为 0：没有什么能让比率越界",
    ),
    "figure.unit-unknown": Text(
        "{names}: the unit cannot be told from the log, so no threshold is applied",
        "{names}：无法从日志判断单位，因此不套用任何阈值",
    ),
    "figure.log-truncated": Text(
        "the file ends in the middle of a record, after {rows} rows", "文件在一条记录中间结束，其前有 {rows} 行"
    ),
}
