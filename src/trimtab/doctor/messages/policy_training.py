"""Gradients, losses, progress of the score, lengths, value model, what the score teaches."""

from __future__ import annotations

from trimtab.doctor.messages import Text

__all__ = ["MESSAGES"]

MESSAGES: dict[str, Text] = {
    "no-gradient.cause": Text(
        "The gradient is exactly 0 though there is something to learn from: parameters frozen, an optimiser on other "
        "parameters, or a fault in the distributed engine.",
        "明明有可学的信号，梯度却恰为 0：参数被冻结、优化器绑定了别的参数，或分布式引擎有故障。",
    ),
    "no-gradient.not-no-signal": Text(
        "Not a batch without signal: scores differ in these rows, as far as they are logged.",
        "不是该批次没有信号：就有记录者而言，这些行的得分存在差异。",
    ),
    "no-gradient.not-loss-zero": Text(
        "Not a loss of 0, which is normal in GRPO: it is the gradient's norm.",
        "不是损失为 0（GRPO 中属正常）：这里是梯度范数。",
    ),
    "exploding-gradients.cause": Text(
        "Gradients far beyond their usual size: single batches or a runaway policy dominate what is learned.",
        "梯度远超常态：少数批次或失控的策略主导了学习。",
    ),
    "exploding-gradients.not-first-steps": Text(
        "Not the first steps, where norms are large: {warm} log points were left out.",
        "不是最初几步（范数本来就大）：已略去 {warm} 个记录点。",
    ),
    "exploding-gradients.not-level": Text(
        "Not a high but steady level: it is measured against the series' own median.",
        "不是偏高但平稳：以该序列自身的中位数为准。",
    ),
    "nan-inf.cause": Text(
        "A loss or gradient is no number any more: from there on the weights are not to be trusted. Go back to a "
        "checkpoint before it.",
        "损失或梯度已不是有效数值：此后的权重不可信。请回到此前的检查点。",
    ),
    "nan-inf.logging": Text(
        "A logged metric is no number while losses and gradients are: most likely the mean of an empty set.",
        "某个记录指标不是有效数值，而损失与梯度正常：多半是对空集合求了平均。",
    ),
    "nan-inf.scale": Text(
        "float16 overflows again and again: its loss scale is at the floor. Use bfloat16 or a lower learning rate.",
        "float16 反复溢出：损失缩放已降无可降。请改用 bfloat16 或降低学习率。",
    ),
    "nan-inf.not-scale": Text(
        "Not float16's loss scale finding its level: that ends within some twenty steps.",
        "不是 float16 损失缩放的初始调整：那在二十步左右内结束。",
    ),
    "nan-inf.not-mean": Text(
        "Not the mean of an empty set: it is a loss or a gradient norm.", "不是空集合的平均：这是损失或梯度范数。"
    ),
    "diverging-loss.cause": Text(
        "The loss runs away from what it had reached: steps too large, or targets that have changed their scale.",
        "损失正远离曾达到的水平：步长过大，或目标的尺度变了。",
    ),
    "diverging-loss.not-cold": Text(
        "Not a cold start: it is compared with its lowest stretch, and rises over the second half.",
        "不是冷启动：与其最低一段相比，且后半程持续上升。",
    ),
    "diverging-loss.not-returns": Text(
        "Not returns that spread as much: as far as they are logged, they did not.",
        "不是回报同步变大：就记录而言并没有。",
    ),
    "diverging-loss.not-level": Text(
        "Not the level of a policy loss, which says nothing: ratio or KL left their bounds with it.",
        "不是策略损失的水平（它不说明问题）：比率或 KL 也同时越界。",
    ),
    "reward-not-improving.cause": Text(
        "The score has not risen beyond its noise over the whole log. What the other findings say comes first; without "
        "any, look at the learning rate, the batch size and whether the scorer tells responses apart.",
        "整个日志中得分没有超出噪声的提升。请先看其他发现；若没有，检查学习率、批量大小以及打分器能否区分回复。",
    ),
    "reward-not-improving.constant": Text("The score is the same in every row.", "每一行的得分都相同。"),
    "reward-not-improving.excerpt": Text(
        "Over most of a run whose length is known the score is where it was at the start.",
        "在已知长度的训练的大部分过程中，得分仍停在起点。",
    ),
    "reward-not-improving.not-too-short": Text(
        "Not too short a log: {rows} log points would have shown a gain of twice the noise.",
        "不是日志太短：{rows} 个记录点足以显示出噪声 2 倍的提升。",
    ),
    "reward-not-improving.not-late-start": Text(
        "Not a sharp early rise: the very first values lie no lower than the rest.",
        "不是早期急升：最初几个值并不低于其余部分。",
    ),
    "reward-decreasing.cause": Text(
        "The score has lost at least half of what it had won, or sinks from the start.",
        "得分已失去此前增幅的一半以上，或从一开始就在下降。",
    ),
    "reward-decreasing.not-noise": Text(
        "Not noise: single values scatter by {noise}.", "不是噪声：单个值的波动为 {noise}。"
    ),
    "reward-decreasing.not-dip": Text(
        "Not a dip: it is still down over the last fifth of the log.", "不是暂时下跌：日志最后五分之一仍处低位。"
    ),
    "oscillating.cause": Text(
        "The score swings up and down again and again: steps are too large for what one batch can tell.",
        "得分反复大起大落：步长超过了单个批次所能提供的信息。",
    ),
    "oscillating.not-noise": Text(
        "Not noise from batch to batch, which is {noise}: the smoothed series swings.",
        "不是批次间噪声（为 {noise}）：平滑后的序列仍在摆动。",
    ),
    "oscillating.not-wander": Text(
        "Not a slow wander: it falls and comes back at least three times.", "不是缓慢游走：至少三次下跌又回升。"
    ),
    "length-explosion.cause": Text(
        "Responses grow without gain: they are cut off more and more, or the score does not rise with them.",
        "回复变长却没有收益：截断越来越多，或得分没有随之上升。",
    ),
    "length-explosion.watch": Text(
        "Responses have grown by half or more; nothing says that it harms.", "回复长度增加一半以上，尚无受损迹象。"
    ),
    "length-explosion.not-earned": Text(
        "Not growth that was earned: there the score rises and responses still end by themselves.",
        "不是合理的变长：那时得分会上升，回复仍能自行结束。",
    ),
    "length-collapse.cause": Text(
        "Responses have shrunk to less than half and the score suffers, or next to nothing is said any more.",
        "回复缩短到不足一半且得分受损，或几乎不再输出内容。",
    ),
    "length-collapse.watch": Text(
        "Responses have shrunk to less than half; nothing says that it harms.", "回复缩短到不足一半，尚无受损迹象。"
    ),
    "length-collapse.not-brief": Text(
        "Not brevity that was learned: that keeps the score.", "不是学会了简洁：那样得分会保持。"
    ),
    "truncated-responses.cause": Text(
        "Responses are cut off at the length limit: what is scored is not a whole response, and ending is not learned.",
        "回复在长度上限处被截断：被打分的不是完整回复，模型也学不会结束。",
    ),
    "truncated-responses.not-padded": Text(
        "Not one full-length row among short ones; but some frameworks count against the padded width: look at a few "
        "responses.",
        "不是个别满长的行；但有些框架按填充后的宽度计数：请抽查几条回复。",
    ),
    "missing-eos.cause": Text(
        "No response ends by itself: the end token is never sampled, is not recognised, or the limit is too short. The "
        "score then rests on cut-off text.",
        "没有回复自行结束：结束符从未被采样、未被识别，或长度上限过短。得分因此建立在残缺文本上。",
    ),
    "missing-eos.not-short": Text(
        "A limit of {length} tokens may be too short for any response: raise it to tell the two apart.",
        "{length} 个词元的上限可能对任何回复都太短：提高上限即可区分两者。",
    ),
    "missing-eos.not-sum": Text(
        "Not a count of one batch: it is so in nearly every row.", "不是个别批次：几乎每一行都如此。"
    ),
    "value-not-learning.cause": Text(
        "The value model explains none of the returns: advantages are no better than the raw return, and noisier.",
        "价值模型完全解释不了回报：优势估计不比原始回报更好，噪声还更大。",
    ),
    "value-not-learning.flat": Text(
        "The value loss has not fallen and is larger than the scores' own variance: predicting their mean would do "
        "better.",
        "价值损失没有下降，且大于得分自身的方差：直接预测均值都会更好。",
    ),
    "value-not-learning.weak": Text(
        "The value model explains little of the returns: under a fifth.", "价值模型对回报的解释不足五分之一。"
    ),
    "value-not-learning.not-cold": Text(
        "Not a cold critic: the first tenth of the log was left out, or the loss has had the whole log to fall.",
        "不是价值模型冷启动：已略去日志前十分之一，或损失已有整个日志的时间下降。",
    ),
    "value-not-learning.not-constant-returns": Text(
        "Not returns that hardly vary, where explained variance means nothing.",
        "不是回报几乎不变（那时解释方差没有意义）。",
    ),
    "value-not-learning.not-low": Text(
        "Not a loss as low as it can get: it is four times the scores' variance or more.",
        "不是损失已到最低：它至少是得分方差的四倍。",
    ),
    "no-reward-signal.cause": Text(
        "In most groups all responses score the same, so that they teach nothing: the task is too hard or too easy for "
        "the policy, or the score is too coarse.",
        "多数组内所有回复得分相同，因而学不到东西：任务对策略过难或过易，或得分过粗。",
    ),
    "no-reward-signal.constant": Text(
        "Scores do not differ at all: the scorer returns a constant, or what it rewards never occurs.",
        "得分毫无差异：打分器返回常数，或它奖励的情形从未出现。",
    ),
    "no-reward-signal.solved": Text(
        "Most groups are alike because the score is near its best: the prompts have been learned. Harder ones would "
        "teach more.",
        "多数组得分相同是因为已接近最佳：这些提示已学会，换更难的提示更有效。",
    ),
    "no-reward-signal.not-batch": Text(
        "Not the spread over the batch, which differs between prompts anyway: it is that within groups, or there is "
        "none at all.",
        "不是整批的离散度（提示之间本来就不同）：这里看的是组内，或完全没有差异。",
    ),
    "no-reward-signal.not-solved": Text(
        "Not prompts that have been learned: the score is not at its best.", "不是提示已学会：得分并未达到最佳。"
    ),
    "reward-scale.cause": Text(
        "Scores are so large that the value model and the advantages feel it: its loss grows with their square.",
        "得分过大，已影响价值模型和优势：价值损失随其平方增长。",
    ),
    "reward-scale.small": Text(
        "Scores are so small that next to nothing reaches the advantages.", "得分过小，几乎传不到优势里。"
    ),
    "reward-scale.not-normalised": Text(
        "Not normalised later: returns, advantages or the value loss carry the same scale.",
        "后续并未归一化：回报、优势或价值损失带着同样的尺度。",
    ),
    "reward-noise.cause": Text(
        "A batch says little about the policy: its mean jumps by half of what single responses differ by, or more. "
        "Larger batches come before anything else.",
        "单个批次几乎说明不了策略好坏：批均值的跳动达到单条回复差异的一半以上。首先要加大批量。",
    ),
    "reward-noise.not-swings": Text(
        "Not swings of the policy: neighbouring batches differ.", "不是策略摆动：相邻批次之间就有差异。"
    ),
    "advantage-not-centred.cause": Text(
        "Advantages are the bare scores: no baseline is subtracted. One response a prompt, or groups formed by a wrong "
        "index.",
        "优势就是原始得分：没有减去基线。每个提示只有一个回复，或分组索引有误。",
    ),
    "advantage-not-centred.not-chosen": Text(
        "Not REINFORCE without a baseline by choice: the log does not say so.",
        "不是有意不用基线的 REINFORCE：日志没有这样说明。",
    ),
    "advantage-not-centred.not-chance": Text(
        "Not chance: rows whose score is near 0, where the two agree anyway, do not count.",
        "不是巧合：得分接近 0、两者本来就相等的行不计入。",
    ),
    "advantage-not-centred.not-lengths": Text(
        "Not unequal lengths weighing in a mean over tokens: the mean is over half of the spread.",
        "不是按词元平均时长度不等所致：均值超过离散度的一半。",
    ),
}
