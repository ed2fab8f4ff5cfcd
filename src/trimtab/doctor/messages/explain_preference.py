"""Explanations: reward hacking and the preference model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text
from trimtab.doctor.messages.explain_words import page

__all__ = ["PREFERENCE"]

PREFERENCE: Final[Mapping[str, Text]] = {
    **page(
        "reward-hacking",
        ("The score rises, quality falls", "分数上升，质量下降"),
        (
            "The policy has found responses that the preference model scores highly and that are not better. The score"
            " keeps rising while an independent measure (a held-out judge, a gold score, a benchmark, people) stands"
            " still or falls. Without such a measure it cannot be told from success: the doctor then says at most that"
            " it suspects it.",
            "策略找到了偏好模型打高分、但其实并不更好的回答。分数继续上升，而独立指标（留出的评判模型、真实得分、基准"
            "测试、人工评价）停滞或下降。没有这样的指标，就无法把它与真正的进步区分开：此时医生最多说“怀疑”。",
        ),
        [
            (
                "The slope of the score is above 0 and that of the independent measure below 0, both beyond their"
                " intervals.",
                "分数的斜率大于 0，独立指标的斜率小于 0，且都超出区间。",
            ),
            (
                "The measure has fallen from its best value by more than two standard errors while the score went"
                " on rising.",
                "独立指标从最好值回落超过两个标准误，而分数仍在上升。",
            ),
            (
                "Source: Gao, Schulman and Hilton 2022 (not checked against the paper): the gold score peaks at some KL"
                " and falls beyond it.",
                "来源：Gao、Schulman、Hilton 2022（未与原文核对）：真实得分在某个 KL 处见顶，之后下降。",
            ),
        ],
        [
            (
                "Noise of the measure: a few hundred prompts have a standard error of one to two points.",
                "独立指标本身的噪声：几百个提示的标准误有一到两个百分点。",
            ),
            (
                "A measure taken at another temperature, or a reward that was rescaled or replaced on the way.",
                "独立指标在另一种温度下测得，或中途更换、缩放了奖励。",
            ),
        ],
    ),
    **page(
        "repetitive-outputs",
        ("Repetitive or formulaic responses", "回答重复或千篇一律"),
        (
            "Responses repeat themselves, or responses to different prompts repeat each other. It is the commonest"
            " end of"
            " a run whose reward can be had without reading the prompt.",
            "回答内部重复，或不同提示得到几乎一样的回答。奖励不看提示就能拿到时，训练最常见的结局就是这样。",
        ),
        [
            (
                "Distinct word pairs fall by more than 30 % from the start (heuristic).",
                "不同词对的比例比开始时下降 30 % 以上（经验值）。",
            ),
            (
                "Scores hardly vary over the batch: a deviation under 1 % of their mean for several steps in a row.",
                "整批分数几乎没有差别：连续多步标准差不到均值的 1 %。",
            ),
            ("KL rises all the while (TRL issue 204).", "与此同时 KL 一直上升（TRL issue 204）。"),
        ],
        [
            ("A template that the task asks for (tags, JSON).", "任务本身要求的固定格式（标签、JSON）。"),
            ("Short responses, or a lower sampling temperature than before.", "回答很短，或采样温度比之前低。"),
        ],
    ),
    **page(
        "style-exploitation",
        ("Style instead of substance", "只有腔调，没有内容"),
        (
            "Hedging, apologies, praise or stock phrases become frequent because they score well. The content does not"
            " change with them.",
            "含糊、道歉、恭维或套话变得频繁，只因为它们得分高；内容并没有随之改变。",
        ),
        [
            (
                "The rate of such phrases at least doubles against the reference, by more than three standard errors"
                " (heuristic).",
                "这类措辞的频率至少是参考模型的两倍，且超过三个标准误（经验值）。",
            ),
            ("Adding the phrase to a response raises its score.", "在回答里加上这类措辞，分数就上升。"),
        ],
        [
            ("Prompts of another kind than before.", "提示的类型变了。"),
            ("Safety training, where caution is wanted.", "安全训练，谨慎本来就是目标。"),
        ],
    ),
    **page(
        "length-exploitation",
        ("Length is bought, not earned", "靠变长得分"),
        (
            "Responses grow and the score follows their length rather than their quality. Human labels prefer the"
            " longer"
            " response in about 64 % of cases, strong judges in 65 to 75 %: a preference model learns that much easily,"
            " and a policy turns it up.",
            "回答越来越长，分数跟着长度走，而不是跟着质量走。人工标签约有 64 % 偏好较长的回答，强评判模型为 65 至"
            " 75 %："
            "偏好模型很容易学到这一点，策略再把它放大。",
        ),
        [
            (
                "More than half of the gain in score is what the growth in length alone predicts, or length has"
                " grown by"
                " half while an independent measure stands still.",
                "分数的提升有一半以上可由长度增长解释；或长度增加一半而独立指标不动。",
            ),
            (
                "Source: AlpacaEval's annotator table; the bands are heuristic.",
                "来源：AlpacaEval 的评判者统计；阈值为经验值。",
            ),
        ],
        [
            (
                "Reasoning that needs the room: then an independent measure rises with the length.",
                "推理确实需要篇幅：那样独立指标会随长度一起上升。",
            ),
            (
                "Longer responses that are better: compare with the reference labels on the same pairs.",
                "长回答确实更好：与同样回答对上的参考标签比较。",
            ),
        ],
    ),
    **page(
        "sycophancy",
        ("It says what the user wants to hear", "迎合用户"),
        (
            "The policy changes its answer to the view that the user has stated, and flatters. Preference labels by"
            " people"
            " and by models both reward this.",
            "策略会改口附和用户说出的观点，并加以奉承。人和模型给出的偏好标签都会奖励这种行为。",
        ),
        [
            (
                "Praise and agreement become at least twice as frequent as in the reference (heuristic).",
                "赞同与恭维的频率至少是参考模型的两倍（经验值）。",
            ),
            (
                'On paired prompts with and without "I think the answer is X", answers flip at least ten points more'
                " often (heuristic).",
                "在带与不带“我觉得答案是 X”的成对提示上，改口率高出至少十个百分点（经验值）。",
            ),
        ],
        [
            (
                "Users who are right: the flip rate counts only where they are not.",
                "用户本来就是对的：只应在用户说错时统计改口率。",
            )
        ],
    ),
    **page(
        "pm-low-accuracy",
        ("The preference model tells too little", "偏好模型分不清好坏"),
        (
            "On held-out pairs it scores the better response higher in fewer than 65 % of cases, and the sample is"
            " large"
            " enough to say so. Everything that follows is trained on this signal. Two people agree in about 66 % on"
            " open-ended responses; no model can be expected to exceed its labelers.",
            "在留出的回答对上，它给较好的回答打更高分的比例不到 65 %，且样本足以下结论。后面的一切都建立在这个信号上。"
            "两个人在开放式回答上的一致率约为 66 %，不能指望模型超过给它打标签的人。",
        ),
        [
            (
                "Accuracy under 0.55 fails, 0.55 to 0.65 is weak, 0.65 to 0.80 is usual on pairs labeled by people.",
                "正确率低于 0.55 为不合格，0.55 至 0.65 偏弱，0.65 至 0.80 是人工标注数据上的常见水平。",
            ),
            ("The 95 % interval (Wilson) must exclude 0.70.", "95 % 区间（Wilson）须排除 0.70。"),
            (
                "Sources: DeepSpeed-Chat's reference model (0.70), MA-RLHF issue 1 (0.65 is considered low),"
                " AlpacaFarm.",
                "来源：DeepSpeed-Chat 的参考模型（0.70）、MA-RLHF issue 1（0.65 被认为偏低）、AlpacaFarm。",
            ),
        ],
        [
            ("A test set that is hard on purpose.", "故意出难题的测试集。"),
            (
                "Swapped columns or labels: then accuracy is below one half by more than chance.",
                "列或标签弄反：此时正确率显著低于一半。",
            ),
            (
                "Truncation that cuts away the part in which the responses differ; ties.",
                "截断切掉了两个回答不同的部分；平局。",
            ),
        ],
    ),
    **page(
        "pm-overfit",
        ("The preference model knows its pairs by heart", "偏好模型过拟合"),
        (
            "It gets better on the pairs that it trains on and worse, or no better, on held-out ones. Preference"
            " data are"
            " small and correlated: one pass is usual.",
            "在训练用的回答对上越来越好，在留出的回答对上却变差或停滞。偏好数据量小、彼此相关：通常只训练一遍。",
        ),
        [
            ("Training accuracy exceeds held-out accuracy by more than 0.10.", "训练正确率比留出正确率高 0.10 以上。"),
            (
                "Held-out loss rises over two or more evaluations while training loss falls.",
                "训练损失下降时，留出损失连续两次以上评估上升。",
            ),
        ],
        [
            (
                "Over-confidence: the loss rises although accuracy is stable; then it is a matter of calibration.",
                "过度自信：正确率稳定而损失上升；那是校准问题。",
            )
        ],
    ),
    **page(
        "pm-score-collapse",
        ("All responses get the same score", "分数塌缩"),
        (
            "Scores over different responses hardly differ, or sit at a bound. There is nothing for a policy to climb.",
            "不同回答的分数几乎一样，或都卡在上下限。策略无坡可爬。",
        ),
        [
            (
                "More than 95 % of scores are equal, or deviation and mean margin are under 0.05 and the scores do"
                " not tell"
                " the better response (heuristic).",
                "95 % 以上的分数相同；或标准差与平均分差都低于 0.05，且分不出较好的回答（经验值）。",
            ),
            (
                "More than half of the scores sit exactly at one end of their range.",
                "一半以上的分数正好落在取值范围的一端。",
            ),
        ],
        [
            (
                "Scores that were normalised or squashed: small numbers that tell good from bad are only a matter"
                " of scale.",
                "分数被归一化或压缩过：数值小但分得出好坏，只是尺度问题。",
            ),
        ],
    ),
    **page(
        "pm-narrow",
        ("High scores for one kind of response only", "只给一类回答高分"),
        (
            "The responses with the highest scores are much more alike than others that are just as good. A policy will"
            " be drawn into that corner.",
            "得分最高的回答彼此过于相似，而其他同样好的回答得分低。策略会被吸进这个角落。",
        ),
        [
            (
                "Distinct word pairs in the top tenth are under half of those of equally good responses (heuristic).",
                "前十分之一回答里的不同词对，不到同等质量回答的一半（经验值）。",
            )
        ],
        [("Topics: compare responses to the same kind of prompt.", "话题差异：应比较同类提示的回答。")],
    ),
    **page(
        "pm-self-contradiction",
        ("The preference model contradicts itself", "偏好模型自相矛盾"),
        (
            "Reworded copies of a pair get score gaps of opposite sign. What it scores is then wording, not content.",
            "同一回答对改写之后，分差的正负号变了。它打分看的是措辞，不是内容。",
        ),
        [
            (
                "The sign changes in more than 10 % of reworded pairs (heuristic).",
                "改写后的回答对中，10 % 以上正负号改变（经验值）。",
            )
        ],
        [("Close calls: margins near 0 change their sign for nothing.", "本来就难分：分差接近 0 时正负号容易变。")],
    ),
    **page(
        "pm-miscalibrated",
        ("Score gaps do not mean what they say", "分差不等于把握"),
        (
            "sigmoid(score gap) should be the probability that the better response wins. Here it is too sure, or"
            " not sure"
            " enough. It matters where margins are used as probabilities, as soft labels, or as the size of a reward.",
            "sigmoid(分差) 本应是较好的回答获胜的概率。这里它过于自信，或不够自信。把分差当概率、"
            "软标签或奖励大小使用时，"
            "这一点很重要。",
        ),
        [
            (
                "Expected calibration error above 0.10 on 300 pairs or more, and a fitted temperature beyond 1.5 or"
                " 1 / 1.5"
                " (heuristic).",
                "300 对以上的期望校准误差高于 0.10，且拟合温度超出 1.5 或 1/1.5（经验值）。",
            ),
        ],
        [
            (
                "Small samples: a perfect model has an error above 0 in ten bins.",
                "样本小：完美的模型在十个分箱里误差也大于 0。",
            ),
            (
                "Scores that made the labels, ratings, or scores after a sigmoid: no probability can be read from"
                " their gap.",
                "标签就是由这些分数生成的、评分档位、或已过 sigmoid 的分数：不能从分差读出概率。",
            ),
            (
                "Data far from the training pairs: report calibration on both.",
                "与训练数据相差很远的测试集：两边都要报告。",
            ),
        ],
    ),
    **page(
        "pm-distribution-shift",
        ("The policy has left what the preference model knows", "策略走出了偏好模型的见识"),
        (
            "The policy's responses no longer resemble those that the preference model was trained on. Its scores"
            " there are"
            " extrapolation.",
            "策略的回答已不像偏好模型训练时见过的样子，它在那里的分数只是外推。",
        ),
        [
            (
                "shift/distance: the responses' hidden states in the preference model lie at the 70th percentile of"
                " the distances of unseen pairs on average, or above, and 0.15 above where they began (half = as those"
                " pairs; healthy runs of the tiny world .41-.62).",
                "shift/distance：回答在偏好模型中的隐藏状态，平均处于未见偏好对距离的第 70 百分位以上，且比起初高 0.15"
                "（0.5 = 与那些偏好对相同；小世界健康运行为 .41-.62）。",
            ),
            (
                "shift/outside_fraction: more than a tenth of the responses lie beyond the 99th percentile.",
                "shift/outside_fraction：十分之一以上的回答超出第 99 百分位。",
            ),
            (
                "trimtab pm shift: the distances alone cost five points of the accuracy to expect, beyond chance.",
                "trimtab pm shift：仅距离一项就使预期正确率下降五个百分点以上，且不是偶然。",
            ),
            (
                "Accuracy on labeled pairs of the policy is five points lower than on held-out pairs, beyond chance.",
                "在策略自己的（已标注）回答对上，正确率比留出对低五个百分点以上，且不是偶然。",
            ),
        ],
        [
            (
                "Improvement itself raises scores, and shift/score_psi with them: look at distance and accuracy.",
                "进步本身也会抬高分数和 shift/score_psi：要看距离和正确率。",
            ),
            (
                "Responses of a policy that settles resemble each other; such pairs are hard for any model, at any"
                " distance.",
                "收敛中的策略，其回答彼此相似；这样的回答对对任何模型都难，与距离无关。",
            ),
        ],
    ),
    **page(
        "pm-length-bias",
        ("The preference model pays for length", "偏好模型偏爱长度"),
        (
            "Score gaps follow length gaps, and it errs where the shorter response is the better one (or the other way"
            " round). A policy finds this within tens of steps.",
            "分差跟着长度差走，并且在“短的更好”（或相反）的回答对上出错。策略几十步内就会发现。",
        ),
        [
            (
                "Rank correlation of score gap and length gap beyond 0.3, and accuracy lower by ten points or more"
                " where the"
                " shorter is better (heuristic).",
                "分差与长度差的秩相关超过 0.3，且在短回答更好的对上正确率低十个百分点以上（经验值）。",
            ),
        ],
        [
            (
                "Longer responses that are better: then it errs equally on both kinds.",
                "长回答确实更好：那样两类上的错误会一样多。",
            )
        ],
    ),
}
"""By `<finding-id>.<part>`."""
