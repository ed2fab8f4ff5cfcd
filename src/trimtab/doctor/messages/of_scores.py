"""What is said of preference models from their scores, and of preference pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text

__all__ = ["MESSAGES"]

MESSAGES: Final[Mapping[str, Text]] = {
    # pm-low-accuracy
    "pm-low-accuracy.share": Text(
        "it scores the better response higher in {value:.1%} of {n} pairs (95 % interval {low:.1%} to {high:.1%});"
        " 65 to 80 % is usual on pairs that people labeled",
        "{n} 个回答对中，它给较好的回答打出更高分的占 {value:.1%}（95 % 区间 {low:.1%} 至 {high:.1%}）；"
        "在人工标注的回答对上，通常是 65 % 至 80 %",
    ),
    "pm-low-accuracy.slice": Text(
        "lowest in {slice}: {value:.1%} of {n}",
        "最低的部分是 {slice}：{n} 对中 {value:.1%}",
    ),
    "pm-low-accuracy.free-coding": Text(
        "the labels are 0 and 1 without saying which means the first; the reading that suits the scores was taken",
        "标签是 0 和 1，但没有说明哪个代表第一个；这里采用了与分数更吻合的读法",
    ),
    "pm-low-accuracy.folds": Text(
        "the best group ({group}) reaches {value:.1%} over {folds} folds (95 % interval {low:.1%} to {high:.1%});"
        " 65 to 80 % is usual on pairs that people labeled",
        "最好的一组（{group}）在 {folds} 折上为 {value:.1%}（95 % 区间 {low:.1%} 至 {high:.1%}）；"
        "在人工标注的回答对上，通常是 65 % 至 80 %",
    ),
    "pm-low-accuracy.worst-group": Text("the worst ({group}): {value:.1%}", "最差的一组（{group}）：{value:.1%}"),
    "pm-low-accuracy.cause": Text(
        "The preference model hardly tells good from bad on these pairs: the policy would be trained on noise. A"
        " test set"
        " that is hard on purpose looks the same; then it must not be used outside easier ground.",
        "偏好模型在这些回答对上几乎分不出好坏：用它训练策略等于用噪声训练。故意出难题的测试集看起来也是这样；"
        "那就只应在较容易的范围内使用它。",
    ),
    "pm-low-accuracy.cause-reversed": Text(
        "The scores are turned round: below one half by more than chance. Labels or columns are probably swapped.",
        "分数方向反了：低于一半，且不是偶然。标签或两列很可能弄反了。",
    ),
    "pm-low-accuracy.not-chance": Text(
        "Not a small sample: with {n} pairs the interval ends at {high:.1%}.",
        "不是样本太小：{n} 个回答对给出的区间上限只有 {high:.1%}。",
    ),
    "pm-low-accuracy.not-order": Text(
        "Not the order of presentation: both orders give the same scores.",
        "与展示顺序无关：两种顺序给出相同的分数。",
    ),
    "pm-low-accuracy.not-split": Text(
        "Not one unlucky split: it is the mean over folds.",
        "不是某次划分运气不好：这是各折的平均。",
    ),
    # pm-overfit, preference-not-generalising
    "pm-overfit.split": Text(
        "{train:.1%} right on training pairs, {held_out:.1%} on {n} held-out ones: a gap of {value:.1%}",
        "训练用的回答对上正确率 {train:.1%}，{n} 个留出的回答对上 {held_out:.1%}：相差 {value:.1%}",
    ),
    "pm-overfit.cause-split": Text(
        "The preference model knows its training pairs by heart rather than what makes a response better.",
        "偏好模型记住了训练用的回答对，而不是学会了什么样的回答更好。",
    ),
    "preference-not-generalising.split": Text(
        "{train:.1%} right on training pairs, {held_out:.1%} on {n} held-out ones: a gap of {value:.1%}",
        "训练用的回答对上正确率 {train:.1%}，{n} 个留出的回答对上 {held_out:.1%}：相差 {value:.1%}",
    ),
    "preference-not-generalising.cause-split": Text(
        "What the policy learned of the training pairs does not carry over to new ones.",
        "策略从训练用的回答对里学到的东西没有推广到新的回答对上。",
    ),
    # pm-miscalibrated
    "pm-miscalibrated.ece": Text(
        "expected calibration error of sigmoid(margin) {value:.3f} on {n} pairs (0 is best, above 0.10 is poor)",
        "{n} 个回答对上，sigmoid(分差) 的期望校准误差为 {value:.3f}（0 最好，高于 0.10 为差）",
    ),
    "pm-miscalibrated.temperature": Text(
        "the likeliest temperature is {value:.3g} (mean margin {margin:.3g}); a calibrated model has 1",
        "最可能的温度是 {value:.3g}（平均分差 {margin:.3g}）；校准良好的模型为 1",
    ),
    "pm-miscalibrated.accuracy": Text("accuracy on the same pairs {value:.1%}", "同样这些回答对上的正确率 {value:.1%}"),
    "pm-miscalibrated.cause-over": Text(
        "The score gaps claim more certainty than the model has.",
        "分差所表达的把握超过了模型实际的把握。",
    ),
    "pm-miscalibrated.cause-under": Text(
        "The score gaps claim less certainty than the model has. It matters where margins become probabilities.",
        "分差所表达的把握低于模型实际的把握。只有在把分差当概率用时才有影响。",
    ),
    "pm-miscalibrated.not-few": Text(
        "Not the bins of a small sample: scaling by {temperature:.3g} fits better by more than one chance in a"
        " thousand.",
        "不是小样本分箱的假象：按 {temperature:.3g} 缩放后拟合明显更好，出于偶然的可能性不到千分之一。",
    ),
    # pm-score-collapse
    "pm-score-collapse.spread": Text(
        "scores have a standard deviation of {value:.3g} and a mean margin of {margin:.3g} over {n} pairs",
        "{n} 个回答对上，分数的标准差为 {value:.3g}，平均分差 {margin:.3g}",
    ),
    "pm-score-collapse.same": Text("{value:.1%} of the scores are the same", "{value:.1%} 的分数完全相同"),
    "pm-score-collapse.within": Text(
        "only {value:.2%} of their variance lies between responses to one prompt",
        "同一提示的两个回答之间只占方差的 {value:.2%}",
    ),
    "pm-score-collapse.bound": Text(
        "{value:.1%} of the scores sit exactly at one end of their range",
        "{value:.1%} 的分数正好落在取值范围的一端",
    ),
    "pm-score-collapse.cause": Text(
        "The model gives nearly every response the same score; a policy gets no direction from it.",
        "模型给几乎所有回答打同样的分；策略从中得不到任何方向。",
    ),
    "pm-score-collapse.cause-bound": Text(
        "The scores are clipped or saturated: beyond that end better and worse look alike.",
        "分数被截断或饱和：到了那一端，好坏看起来一样。",
    ),
    "pm-score-collapse.not-scale": Text(
        "Not merely a small scale: the scores do not tell the better response either.",
        "不只是尺度小：这些分数也分不出哪个回答更好。",
    ),
    # pm-length-bias
    "pm-length-bias.rho": Text(
        "rank correlation of score gap and length gap {value:.2f} over {n} pairs",
        "{n} 个回答对上，分差与长度差的秩相关为 {value:.2f}",
    ),
    "pm-length-bias.share": Text(
        "the longer response gets the higher score in {value:.1%} (95 % interval {low:.1%} to {high:.1%})",
        "较长的回答得分更高的占 {value:.1%}（95 % 区间 {low:.1%} 至 {high:.1%}）",
    ),
    "pm-length-bias.gap": Text(
        "where the longer response is the better one, accuracy is higher by {value:+.1%} than where the shorter is",
        "在长回答更好的那些对上，正确率比短回答更好的那些对高 {value:+.1%}",
    ),
    "pm-length-bias.cause-longer": Text(
        "The preference model pays for length; reinforcement learning will find that out within tens of steps.",
        "偏好模型为长度买单；强化学习几十步之内就会发现这一点。",
    ),
    "pm-length-bias.cause-shorter": Text(
        "The preference model pays for brevity; a policy will learn to stop early.",
        "偏好模型偏爱简短；策略会学着早早停下。",
    ),
    "pm-length-bias.not-earned": Text(
        "Not that longer responses are better here: it errs against the shorter ones that are.",
        "不是这里的长回答本来就更好：较好而较短的回答被它判错得更多。",
    ),
    # pm-narrow
    "pm-narrow.distinct": Text(
        "the {top} better responses with the highest scores hold {value:.0%} of the distinct word pairs that as"
        " many drawn"
        " from all {n} hold",
        "得分最高的 {top} 个较好回答里，不同词对的数量只有从全部 {n} 个中随机抽同样多时的 {value:.0%}",
    ),
    "pm-narrow.cause": Text(
        "High scores go to one family of responses; equally good ones of another style are scored low.",
        "高分只给了一类回答；风格不同但同样好的回答得分很低。",
    ),
    "pm-narrow.not-rating": Text(
        "Not that those responses are better: only responses labeled better are compared.",
        "不是那些回答更好：只在被标为较好的回答之间比较。",
    ),
    # pm-self-contradiction
    "pm-self-contradiction.flips": Text(
        "the score gap changes its sign in {value:.1%} of {n} repetitions of a pair (95 % interval {low:.1%} to"
        " {high:.1%})",
        "同一回答对改写重复 {n} 次，其中 {value:.1%} 的分差变了正负号（95 % 区间 {low:.1%} 至 {high:.1%}）",
    ),
    "pm-self-contradiction.cause": Text(
        "The model prefers one response and then, reworded, the other.",
        "模型先偏好这个回答，换个说法后又偏好另一个。",
    ),
    # inconsistent-preferences
    "inconsistent-preferences.repeats": Text(
        "{value:.1%} of {n} repeated pairs carry both labels (95 % interval {low:.1%} to {high:.1%})",
        "{n} 个重复标注的回答对中，{value:.1%} 带有相反的标签（95 % 区间 {low:.1%} 至 {high:.1%}）",
    ),
    "inconsistent-preferences.cycles": Text(
        "{value:.1%} of {n} triads go round (a over b, b over c, c over a; 95 % interval {low:.1%} to {high:.1%});"
        " noise as in the repeats explains {noise:.1%}, coin tosses would give 25 %",
        "{n} 个三元组中，{value:.1%} 首尾相接（a 胜 b，b 胜 c，c 胜 a；95 % 区间 {low:.1%} 至 {high:.1%}）；"
        "重复标注显示的噪声只能解释 {noise:.1%}，随机标注会是 25 %",
    ),
    "inconsistent-preferences.cause": Text(
        "The labels contradict each other; no score can satisfy both of two opposite labels.",
        "标签自相矛盾；没有任何分数能同时满足两个相反的标签。",
    ),
    "inconsistent-preferences.cause-cycles": Text(
        "The labels cannot come from one ranking: different criteria decide different pairs.",
        "这些标签不可能出自同一个排序：不同的回答对是按不同的标准判的。",
    ),
    "inconsistent-preferences.not-noise": Text(
        "Not only noisy labels: those would make fewer triads go round.",
        "不只是标签有噪声：噪声造成的循环会更少。",
    ),
    "inconsistent-preferences.not-copies": Text(
        "Not copied rows: copies agree with each other.",
        "不是重复拷贝的行：拷贝的标签是一致的。",
    ),
    # noisy-labels
    "noisy-labels.repeats": Text(
        "about {value:.0%} of the labels are wrong (interval {low:.0%} to {high:.0%}): {contradictory:.1%} of {n}"
        " repeated"
        " pairs carry both labels",
        "约 {value:.0%} 的标签是错的（区间 {low:.0%} 至 {high:.0%}）：{n} 个重复标注的回答对中，{contradictory:.1%}"
        " 标签相反",
    ),
    "noisy-labels.plateau": Text(
        "about {value:.0%} of {n} labels contradict the scores at any margin (interval {low:.0%} to {high:.0%})",
        "{n} 个标签中，约 {value:.0%} 无论分差多大都与分数相反（区间 {low:.0%} 至 {high:.0%}）",
    ),
    "noisy-labels.confident": Text(
        "among the {n} pairs with the largest margins, {value:.1%} are labeled the other way",
        "分差最大的 {n} 个回答对中，{value:.1%} 的标签与之相反",
    ),
    "noisy-labels.soft": Text(
        "the soft labels give the rejected response {value:.2f} on average over {n} pairs (a coin toss: 0.5)",
        "{n} 个软标签平均给落选的回答 {value:.2f}（抛硬币为 0.5）",
    ),
    "noisy-labels.cause": Text(
        "Labels are wrong at random: they cap the accuracy of any preference model trained or tested on them.",
        "标签随机出错：用它们训练或测试的任何偏好模型，正确率都有上限。",
    ),
    "noisy-labels.cause-plateau": Text(
        "Labels are wrong regardless of how clear the case is. A preference model with blind spots leaves the same"
        " trace:"
        " look at the pairs with the largest margins against the label.",
        "不管差别多明显，总有一部分标签是错的。偏好模型有盲区时也会留下同样的痕迹："
        "请看分差最大而标签相反的那些回答对。",
    ),
    "noisy-labels.cause-soft": Text(
        "The judge is close to undecided on most pairs; there is little in these labels to learn from.",
        "评判模型对多数回答对几乎拿不定主意；这些标签里没有多少可学的东西。",
    ),
    "noisy-labels.not-close-calls": Text(
        "Not honest close calls: those vanish as the margin grows.",
        "不是本来就难分的情形：那些会随分差增大而消失。",
    ),
    # low-diversity
    "low-diversity.duplicates": Text(
        "{value:.1%} of {n} pairs repeat an earlier one, up to case and punctuation",
        "{n} 个偏好对中，{value:.1%} 与前面的重复（忽略大小写和标点）",
    ),
    "low-diversity.prompts": Text(
        "{n} pairs come from prompts worth {value:.1f} equally frequent ones",
        "{n} 个偏好对的提示只相当于 {value:.1f} 个等频的提示",
    ),
    "low-diversity.response": Text(
        'one response is the chosen one for {value:.1%} of the prompts: "{text}"',
        "同一个回答在 {value:.1%} 的提示上被选中：“{text}”",
    ),
    "low-diversity.opening": Text(
        '{value:.1%} of the chosen responses begin with "{text}"',
        "{value:.1%} 的被选回答以“{text}”开头",
    ),
    "low-diversity.generator": Text(
        "{value:.1%} of the responses are by one model, {name}",
        "{value:.1%} 的回答出自同一个模型 {name}",
    ),
    "low-diversity.cause": Text(
        "The set is smaller than it looks: repeated pairs teach nothing new and are memorised.",
        "数据集没有看上去那么大：重复的偏好对教不了新东西，只会被背下来。",
    ),
    "low-diversity.cause-prompts": Text(
        "A handful of prompts fills the set; the preference model will not know the others.",
        "少数几个提示占满了数据集；别的提示偏好模型不会认识。",
    ),
    "low-diversity.cause-response": Text(
        "Stock responses win whatever is asked; the preference model will pay for them.",
        "不管问什么，赢的都是套话；偏好模型会为套话买单。",
    ),
    "low-diversity.cause-generator": Text(
        "One model wrote nearly everything: right for its own training, narrow for a general preference model.",
        "几乎全部回答出自一个模型：用来训练它自己没有问题，作为通用偏好模型的数据则太窄。",
    ),
}
"""By `<finding-id>.<what>`."""
