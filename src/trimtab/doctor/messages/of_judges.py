"""What is said of judges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text

__all__ = ["MESSAGES"]

MESSAGES: Final[Mapping[str, Text]] = {
    # judge-position-bias
    "judge-position-bias.share": Text(
        "{judge}: {value:.1%} of {n} decided verdicts name the response shown first (95 % interval {low:.1%} to"
        " {high:.1%}, z = {z:.1f})",
        "{judge}：{n} 个分出胜负的判决中，{value:.1%} 选了先展示的回答（95 % 区间 {low:.1%} 至 {high:.1%}，z ="
        " {z:.1f}）",
    ),
    "judge-position-bias.cause-first": Text(
        "The judge favours whatever it is shown first.",
        "评判模型偏向先展示的回答，无论内容如何。",
    ),
    "judge-position-bias.cause-second": Text(
        "The judge favours whatever it is shown second.",
        "评判模型偏向后展示的回答，无论内容如何。",
    ),
    "judge-position-bias.not-quality": Text(
        "Not better responses in one place: the pairs were judged in both orders, where quality cancels.",
        "不是某个位置上的回答更好：这些回答对按两种顺序都评判过，质量差异已相互抵消。",
    ),
    "judge-position-bias.not-quality-drawn": Text(
        "Hardly better responses in one place: either order was used for at least three pairs in ten.",
        "不太可能是某个位置上的回答更好：两种顺序各占至少三成。",
    ),
    "judge-position-bias.not-chance": Text(
        "Not chance: {z:.1f} standard errors from one half.",
        "不是偶然：与一半相差 {z:.1f} 个标准误。",
    ),
    # judge-inconsistency
    "judge-inconsistency.swap": Text(
        "{judge}: {value:.1%} of {n} pairs get the same verdict in both orders (95 % interval {low:.1%} to"
        " {high:.1%});"
        " {opposite} name two different winners, {half} a tie against a winner",
        "{judge}：{n} 个回答对中，{value:.1%} 在两种顺序下判决相同（95 % 区间 {low:.1%} 至 {high:.1%}）；"
        "{opposite} 个前后选了不同的胜者，{half} 个一次平局一次分胜负",
    ),
    "judge-inconsistency.share": Text(
        "{judge}: {value:.1%} of pairs get the same verdict in both orders",
        "{judge}：{value:.1%} 的回答对在两种顺序下判决相同",
    ),
    "judge-inconsistency.repeat": Text(
        "{judge}: asked the same again, it answers the same in {value:.1%} of {n} cases (95 % interval {low:.1%} to"
        " {high:.1%})",
        "{judge}：同样的问题再问一次，{n} 次中有 {value:.1%} 回答相同（95 % 区间 {low:.1%} 至 {high:.1%}）",
    ),
    "judge-inconsistency.ceiling": Text(
        "so about {noise:.0%} of single verdicts are wrong by its own measure, and a preference model trained on them"
        " can agree with a fresh one in {value:.0%} at best",
        "照此估计，单个判决约有 {noise:.0%} 是错的，用它们训练的偏好模型与新判决的一致率最多 {value:.0%}",
    ),
    "judge-inconsistency.cause": Text(
        "The judge does not know: its verdicts change with the order or from one call to the next.",
        "评判模型没有稳定的判断：换个顺序或再问一次，判决就变。",
    ),
    "judge-inconsistency.cause-place": Text(
        "The judge goes by the place: most contradictions name the same place twice.",
        "评判模型看位置下结论：大多数前后矛盾的判决两次都选了同一个位置。",
    ),
    "judge-inconsistency.not-ties": Text(
        "Ties alone do not explain it: a tie against a winner ({half} pairs) counts half here.",
        "不能只归因于平局：一次平局、一次分胜负的（{half} 对）在这里只算半个矛盾。",
    ),
    # judge-disagreement
    "judge-disagreement.gold": Text(
        "{judge}: agrees with the reference label on {value:.1%} of {n} pairs (95 % interval {low:.1%} to"
        " {high:.1%});"
        " two people agree on about 66 %",
        "{judge}：{n} 个回答对中，{value:.1%} 与参考标签一致（95 % 区间 {low:.1%} 至 {high:.1%}）；两个人之间约为 66 %",
    ),
    "judge-disagreement.alpha": Text(
        "Krippendorff's alpha of {raters} raters on {n} pairs is {value:.2f} (95 % interval {low:.2f} to {high:.2f});"
        " 0.8 is sound, below 0.667 tentative, below 0.4 poor",
        "{raters} 位评判者在 {n} 个回答对上的 Krippendorff α 为 {value:.2f}（95 % 区间 {low:.2f} 至 {high:.2f}）；"
        "0.8 可靠，低于 0.667 只可参考，低于 0.4 很差",
    ),
    "judge-disagreement.cause": Text(
        "The judge prefers other responses than the reference labels do.",
        "评判模型的偏好与参考标签不同。",
    ),
    "judge-disagreement.cause-reversed": Text(
        "The judge's verdicts are the reference labels turned round: one of the two columns is probably swapped.",
        "判决与参考标签恰好相反：很可能有一列弄反了。",
    ),
    "judge-disagreement.cause-panel": Text(
        'The raters mean different things by "better".',
        "各位评判者对“更好”的理解不一样。",
    ),
    "judge-disagreement.not-chance": Text(
        "Not a small sample: {n} pairs exclude the agreement of one more person.",
        "不是样本太小：{n} 个回答对已足以排除“相当于再加一个人”的一致率。",
    ),
    # judge-length-bias
    "judge-length-bias.share": Text(
        "{judge}: the longer response wins {value:.1%} of {n} decided verdicts (95 % interval {low:.1%} to"
        " {high:.1%},"
        " z = {z:.1f})",
        "{judge}：{n} 个分出胜负的判决中，较长的回答赢了 {value:.1%}（95 % 区间 {low:.1%} 至 {high:.1%}，z = {z:.1f}）",
    ),
    "judge-length-bias.pairs": Text(
        "the chosen response is the longer one in {value:.1%} of {n} pairs (95 % interval {low:.1%} to {high:.1%})",
        "{n} 个偏好对中，{value:.1%} 选中了较长的回答（95 % 区间 {low:.1%} 至 {high:.1%}）",
    ),
    "judge-length-bias.reference": Text(
        "the reference labels prefer the longer one in {value:.1%} of {n}: the judge does so {excess:+.1%} more often",
        "参考标签在 {n} 对中有 {value:.1%} 偏好较长的回答：评判模型与之相差 {excess:+.1%}",
    ),
    "judge-length-bias.people": Text(
        "people prefer the longer response in about {value:.0%}",
        "人偏好较长回答的比例约为 {value:.0%}",
    ),
    "judge-length-bias.errors": Text(
        "where it errs, it errs toward the longer response in {value:.1%} of {n} cases; without a bias it would be"
        " half",
        "判错的 {n} 次中，{value:.1%} 错在选了较长的回答；没有偏向时应为一半",
    ),
    "judge-length-bias.cause-longer": Text(
        "The judge pays for length. A policy trained on its labels learns to write longer, not better.",
        "评判模型为长度买单。用它的标签训练出来的策略会学着写得更长，而不是更好。",
    ),
    "judge-length-bias.cause-shorter": Text(
        "The judge pays for brevity. A policy trained on its labels learns to cut its responses short.",
        "评判模型偏爱简短。用它的标签训练出来的策略会学着草草收尾。",
    ),
    "judge-length-bias.cause-pairs": Text(
        "Whoever labeled these pairs chose length more often than people do; the preference model will learn that"
        " first.",
        "给这些偏好对打标签的一方比人更偏爱长回答；偏好模型最先学到的就会是长度。",
    ),
    "judge-length-bias.not-better": Text(
        "Not that longer responses are better here: the reference labels were counted on the same pairs.",
        "不是这里的长回答本来就更好：参考标签是在同样的回答对上统计的。",
    ),
    "judge-length-bias.not-chance": Text(
        "Not chance: {z:.1f} standard errors from one half.",
        "不是偶然：与一半相差 {z:.1f} 个标准误。",
    ),
    # judge-self-preference
    "judge-self-preference.share": Text(
        "{judge}: its own responses win {value:.1%} of {n} verdicts (95 % interval {low:.1%} to {high:.1%}, z ="
        " {z:.1f})",
        "{judge}：{n} 个判决中，它自己的回答赢了 {value:.1%}（95 % 区间 {low:.1%} 至 {high:.1%}，z = {z:.1f}）",
    ),
    "judge-self-preference.others": Text(
        "by the reference labels or the other judges the same responses win {value:.1%}",
        "按参考标签或其他评判者，同样这些回答的胜率是 {value:.1%}",
    ),
    "judge-self-preference.cause": Text(
        "The judge prefers responses written by itself or its family.",
        "评判模型偏爱自己（或同系列模型）写的回答。",
    ),
    "judge-self-preference.not-better": Text(
        "Not only that its responses are better: the same ones win less with others.",
        "不只是它的回答更好：同样的回答在别人那里胜率更低。",
    ),
    "judge-self-preference.not-chance": Text(
        "Not chance: {z:.1f} standard errors from one half. Whether its responses are simply better, only other"
        " judges"
        " on the same pairs can tell.",
        "不是偶然：与一半相差 {z:.1f} 个标准误。至于是不是它的回答本来就更好，只有让别的评判者看同样的回答对才能知道。",
    ),
    # judge-unparsed
    "judge-unparsed.share": Text(
        "{judge}: {value:.1%} of {n} calls gave no verdict ({unparsed} unparsed, {refused} refused, {errors} failed)",
        "{judge}：{n} 次调用中，{value:.1%} 没有得到判决（{unparsed} 次无法解析，{refused} 次拒答，{errors}"
        " 次调用失败）",
    ),
    "judge-unparsed.rate": Text(
        "{judge}: {value:.1%} of the calls gave no verdict",
        "{judge}：{value:.1%} 的调用没有得到判决",
    ),
    "judge-unparsed.cause-unparsed": Text(
        "The judge answers, but not in the form that is asked for; what is left is not a fair sample of the pairs.",
        "评判模型答了，但格式不对；剩下能用的判决不再是这些回答对的公平样本。",
    ),
    "judge-unparsed.cause-refused": Text(
        "The judge declines to compare; the topics that it declines are missing from the labels.",
        "评判模型拒绝比较；被拒绝的那些话题会从标签里消失。",
    ),
    "judge-unparsed.cause-error": Text(
        "The calls fail: a matter of the server or its limits, not of the judge.",
        "调用本身失败：问题在服务端或其限额，不在评判模型。",
    ),
    # judge-template-sensitivity
    "judge-template-sensitivity.flips": Text(
        "{judge}: another wording of the instructions changes {value:.1%} of {n} verdicts (95 % interval {low:.1%} to"
        " {high:.1%})",
        "{judge}：换一种措辞下达指令，{n} 个判决中有 {value:.1%} 改变（95 % 区间 {low:.1%} 至 {high:.1%}）",
    ),
    "judge-template-sensitivity.noise": Text(
        "repeating the same wording changes {value:.1%} of {n}",
        "同一措辞重复提问，{n} 个判决中有 {value:.1%} 改变",
    ),
    "judge-template-sensitivity.cause": Text(
        "The labels depend on how the question is put, not only on the responses.",
        "标签取决于怎么问，而不只取决于回答本身。",
    ),
    "judge-template-sensitivity.not-noise": Text(
        "Not the judge's own noise: repeats of one wording change less.",
        "不是评判模型自身的噪声：同一措辞的重复提问变化更小。",
    ),
}
"""By `<finding-id>.<what>`."""
