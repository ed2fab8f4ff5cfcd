"""Direct preference, preference models and labels by their logs, evaluation, the log itself."""

from __future__ import annotations

from trimtab.doctor.messages import Text

__all__ = ["MESSAGES"]

MESSAGES: dict[str, Text] = {
    "reference-mismatch.cause": Text(
        "At the first log point the implicit rewards are far from 0: the reference is not the model that training "
        "started from.",
        "第一个记录点的隐式奖励就远离 0：参考模型不是训练的起点模型。",
    ),
    "reference-mismatch.policy": Text(
        "Policy and reference differ before the first update, where they are to be the same model: another checkpoint, "
        "adapter, temperature, dropout or precision.",
        "首次更新前策略与参考模型就不一致，而此时二者应相同：检查点、适配器、温度、dropout 或精度不同。",
    ),
    "reference-mismatch.not-learned": Text(
        "Not learned: the first log point comes too early for it.", "不是学出来的：第一个记录点太早。"
    ),
    "reference-mismatch.not-rounding": Text(
        "Not rounding, which stays under some thousandths per token.", "不是舍入误差：那每词元只有千分之几。"
    ),
    "preference-overfit.cause": Text(
        "The pairs are learned by heart: loss near 0 and every pair right early on, or held-out loss rising while "
        "training loss falls.",
        "偏好对被死记：很早损失就接近 0 且全部判对，或训练损失下降而留出损失上升。",
    ),
    "preference-overfit.not-margin": Text(
        "Not a large margin alone, which is what is optimised.", "不只是间隔大（那正是优化目标）。"
    ),
    "preference-not-generalising.cause": Text(
        "Training pairs are right more often than held-out ones, by {gap}: what was learned does not carry over.",
        "训练偏好对的正确率比留出数据高 {gap}：学到的东西没有推广。",
    ),
    "preference-not-generalising.gap": Text(
        "Training pairs are ahead of held-out ones, which still gain.", "训练正确率领先于留出数据，但后者仍在提高。"
    ),
    "preference-not-generalising.not-small": Text(
        "Not one small evaluation: the last ones agree, as far as there are several.",
        "不是单次小样本评估：若有多次评估，最近几次结果一致。",
    ),
    "likelihood-displacement.cause": Text(
        "The margin grows because both responses become unlikely, the rejected one faster: the probability goes to "
        "responses that nobody has rated.",
        "间隔变大是因为两个回复的概率都在下降，只是被拒者降得更快：概率流向了无人评过的回复。",
    ),
    "likelihood-displacement.not-negative": Text(
        "Not a negative chosen reward alone, which is common: its log-probability has sunk with it, as far as logged.",
        "不只是 chosen 奖励为负（这很常见）：就记录而言，其对数概率也一起下沉。",
    ),
    "likelihood-displacement.not-diverged": Text(
        "Not plain divergence: the margin still rises.", "不是单纯发散：间隔仍在上升。"
    ),
    # preference models
    "pm-distribution-shift.left": Text(
        "The policy's responses have left the region that the preference model was trained on: what it says there is "
        "extrapolation, and what the policy learns from it may be its faults.",
        "策略的回答已离开偏好模型的训练区域：它在那里的分数只是外推，策略学到的可能正是它的缺陷。",
    ),
    "pm-distribution-shift.from-start": Text(
        "From the first iteration on the policy's responses are unlike those that the preference model was trained on: "
        "its pairs come from other models or other prompts.",
        "从第一次迭代起，策略的回答就不像偏好模型训练时见过的样子：那些偏好对来自别的模型或别的提示。",
    ),
    "pm-distribution-shift.unlike": Text(
        "The preference model is right less often on the policy's responses than on the pairs that it comes from.",
        "在策略自己的回答上，偏好模型的正确率低于它在原有偏好对上的正确率。",
    ),
    "pm-distribution-shift.not-progress": Text(
        "Not progress alone: that moves the scores, which were not counted here.",
        "不只是进步：进步也会改变分数，所以这里没有以分数为据。",
    ),
    "pm-low-accuracy.logged": Text(
        "The preference model orders pairs hardly better than a coin: what is trained on it learns noise.",
        "偏好模型排序的正确率与抛硬币相差无几：据此训练学到的是噪声。",
    ),
    "pm-low-accuracy.logged-weak": Text(
        "The preference model is weak: .65 to .80 is usual on pairs labeled by people.",
        "偏好模型偏弱：在人工标注的偏好对上通常为 0.65 到 0.80。",
    ),
    "pm-low-accuracy.logged-swapped": Text(
        "The preference model is wrong more often than right: chosen and rejected are swapped somewhere.",
        "偏好模型错多于对：某处 chosen 与 rejected 颠倒了。",
    ),
    "pm-low-accuracy.logged-loss": Text(
        "The loss is still that of a coin, ln 2: nothing has been learned.", "损失仍是抛硬币的水平 ln 2：什么也没学到。"
    ),
    "pm-low-accuracy.not-logged-start": Text(
        "Not the start of training, where one half is normal: the level is that of the end of the log.",
        "不是训练起始阶段（那时一半是正常的）：这里是日志末尾的水平。",
    ),
    "pm-low-accuracy.not-logged-peers": Text(
        "Hard pairs may allow no more: compare with how often two labelers agree.",
        "偏好对若很难，可能只能如此：请与两名标注者的一致率比较。",
    ),
    "pm-overfit.logged": Text(
        "The preference model learns its pairs by heart: it is ahead on training pairs, or held-out accuracy or loss "
        "gets worse while the training loss falls.",
        "偏好模型在死记训练数据：训练正确率明显领先，或训练损失下降而留出正确率、损失变差。",
    ),
    "pm-overfit.not-logged-confident": Text(
        "Not overconfidence alone, which raises the held-out loss but leaves accuracy: accuracy fell or lags, or the "
        "rise is large.",
        "不只是过度自信（那会抬高留出损失而不影响正确率）：正确率下降或落后，或损失上升很大。",
    ),
    "pm-score-collapse.logged": Text(
        "Scores hardly differ between responses: a wrong pooling position (padding, end token), a dead head or a "
        "learning rate out of proportion.",
        "不同回复的得分几乎没有差别：池化位置有误（填充、结束符）、打分头失效，或学习率不当。",
    ),
    "pm-score-collapse.not-logged-normalised": Text(
        "Not scores normalised to a small scale on purpose, as far as the log tells: margins collapse as well.",
        "就日志而言不是有意缩小尺度：间隔也一起塌缩。",
    ),
    "pm-miscalibrated.logged": Text(
        "Margins do not mean what they say as probabilities: rescale by the temperature before they become soft labels "
        "or margins.",
        "间隔不能当作概率来用：在用作软标签或间隔之前，先按温度校准。",
    ),
    "pm-miscalibrated.not-logged-hard": Text(
        "Held-out pairs harder than those of training look the same: check on pairs of the same source.",
        "若留出数据比训练数据更难，看起来也一样：请用同源数据核对。",
    ),
    "pm-length-bias.logged": Text(
        "The score follows length: longer responses win by being longer, and a policy will find that out.",
        "得分跟着长度走：更长就能赢，而策略迟早会发现这一点。",
    ),
    "pm-length-bias.logged-shorter": Text(
        "The score follows length downwards: shorter responses win by being shorter.", "得分与长度反向：更短就能赢。"
    ),
    "pm-length-bias.not-logged-better": Text(
        "Longer responses that really are better look the same: compare with the same correlation of the labels.",
        "若更长的回复确实更好，看起来也一样：请与标签自身的相关性比较。",
    ),
    # labels and samples
    "judge-position-bias.logged": Text(
        "The judge favours one place of presentation over the other.", "评判模型偏爱某一呈现位置。"
    ),
    "judge-position-bias.not-logged-order": Text(
        "Not better responses in one place: each pair was shown in both orders.",
        "不是某个位置的回复更好：每对都以两种顺序呈现过。",
    ),
    "judge-position-bias.not-logged-unknown": Text(
        "With one order only, better responses in one place look the same: show both.",
        "若只呈现一种顺序，某一位置的回复恰好更好也会如此：请呈现两种顺序。",
    ),
    "judge-inconsistency.logged": Text(
        "The judge contradicts itself when the order of the responses changes.", "调换回复顺序后，评判模型自相矛盾。"
    ),
    "judge-inconsistency.not-logged-ties": Text(
        "Close pairs flip more easily: the share counts all of them.", "相近的偏好对更易翻转：该比例包含全部。"
    ),
    "judge-unparsed.logged": Text(
        "Too many judge calls give no verdict: unreadable, refused or failed. What is left may be a biased choice.",
        "太多评判调用没有得到结论：无法解析、被拒绝或失败。剩下的可能是有偏的样本。",
    ),
    "judge-length-bias.logged": Text(
        "The judge prefers the longer response more often than people do.", "评判模型比人更偏爱较长的回复。"
    ),
    "judge-length-bias.not-logged-people": Text(
        "People prefer the longer one too, in 64 % of pairs: the share is tested against that.",
        "人也偏爱较长的回复（约 64%）：该比例以此为基准检验。",
    ),
    "noisy-labels.logged": Text(
        "Labels hardly decide: nearly all of them are at one half.", "标签几乎不作区分：绝大多数都在一半附近。"
    ),
    "noisy-labels.not-logged-ties": Text(
        "Pairs that really are alike look the same: sample them further apart.",
        "若两个回复确实相近也会如此：请采样差异更大的配对。",
    ),
    "low-diversity.logged": Text(
        "Too many pairs hold the same text twice: they cost a verdict and teach nothing.",
        "太多配对的两个回复完全相同：白费评判，学不到东西。",
    ),
    "low-diversity.not-logged-small": Text(
        "Very short responses coincide more easily: look at the lengths.", "极短的回复更易重合：请查看长度。"
    ),
    # evaluation
    "alignment-tax.cause": Text(
        "{measure} has lost {points} points against its start: training has cost an ability that it did not aim at.",
        "{measure} 比起点低了 {points} 个百分点：训练损害了并非其目标的能力。",
    ),
    "alignment-tax.not-noise": Text(
        "Not noise of the evaluation: the drop is beyond two and a half of its errors.",
        "不是评估噪声：降幅超过 2.5 倍误差。",
    ),
    "alignment-tax.not-format": Text(
        "A parser that no longer finds the answer looks the same: read a few responses.",
        "若解析器读不出新格式的答案也会如此：请抽查几条回复。",
    ),
    "benchmark-overfitting.cause": Text(
        "The public test rises while its fresh variant does not: what is learned is the test.",
        "公开测试集在上升而其全新变体没有：学到的是测试题本身。",
    ),
    "benchmark-overfitting.not-harder": Text(
        "Not a harder variant: it is the gap between the two that grows.", "不是变体更难：是两者之间的差距在扩大。"
    ),
    # the log itself
    "invalid-metric.cause": Text(
        "A logged value cannot be: it is computed wrongly (padding, masks, sentinels). Diagnose nothing from it.",
        "记录了不可能的值：该指标计算有误（填充、掩码、占位值）。不要据此诊断。",
    ),
    "invalid-metric.not-rounding": Text("Not rounding: the value is far outside.", "不是舍入误差：数值远超范围。"),
    "unit-unknown.cause": Text(
        "Some series are in a unit that the log does not tell; checks that need it did not fire.",
        "部分序列的单位无法从日志得知；需要单位的检查没有触发。",
    ),
    "log-truncated.cause": Text(
        "The log ends in the middle of a record: the run was killed or is still being written. All before it was read.",
        "日志在一条记录中间结束：训练被中止或仍在写入。此前内容均已读取。",
    ),
}
