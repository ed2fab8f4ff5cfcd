"""Explanations: the judge and the preference data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text
from trimtab.doctor.messages.explain_words import page

__all__ = ["LABELS"]

LABELS: Final[Mapping[str, Text]] = {
    **page(
        "inconsistent-preferences",
        ("The labels contradict each other", "标签自相矛盾"),
        (
            "The same pair carries both labels, or three responses beat each other in a circle. No score can"
            " satisfy such"
            " labels; they bound the accuracy of any preference model.",
            "同一回答对带有相反的标签，或三个回答循环相胜。任何分数都满足不了这样的标签，"
            "偏好模型的正确率也因此有上限。",
        ),
        [
            (
                "More than 10 % of repeated pairs carry both labels (heuristic).",
                "重复标注的回答对中，10 % 以上标签相反（经验值）。",
            ),
            (
                "More than 5 % of triads go round, and more than noise explains; coin tosses would give 25 %"
                " (heuristic).",
                "5 % 以上的三元组首尾相接，且超出噪声所能解释；随机标注为 25 %（经验值）。",
            ),
        ],
        [
            ("Real ties: two equal responses are labeled either way.", "真正的平局：两个同样好的回答，怎么标都行。"),
            ("Criteria that depend on the context: then split by context first.", "标准随情境而变：先按情境分开。"),
        ],
    ),
    **page(
        "judge-position-bias",
        ("The judge looks at the place", "评判模型看位置"),
        (
            "What is shown first (or second) wins more often, whatever it says. It can only be seen if pairs are"
            " judged in"
            " both orders or in a random one; from a single order it cannot be told from quality.",
            "先展示（或后展示）的回答赢得更多，与内容无关。只有按两种顺序或随机顺序评判才看得出来；只有一种顺序时，"
            "无法与质量差异区分。",
        ),
        [
            (
                "The share of the first place differs from one half by more than 5 points and three standard"
                " errors; from 10"
                " points on it is critical.",
                "先展示者的胜率与一半相差 5 个百分点以上且超过三个标准误；达到 10 个百分点为严重。",
            ),
            (
                "Source: AlpacaEval's annotators choose the first response in 42 to 57 %, people in 52 %.",
                "来源：AlpacaEval 的各评判者选第一个的比例为 42 % 至 57 %，人为 52 %。",
            ),
        ],
        [
            (
                "One order only, with the better responses always in one place.",
                "只有一种顺序，且较好的回答总在同一位置。",
            ),
            ("A judge that mostly says tie.", "评判模型大多判平局。"),
        ],
    ),
    **page(
        "judge-inconsistency",
        ("The judge changes its mind", "评判模型反复无常"),
        (
            "Asked in the other order, or once more, it gives another verdict. If two verdicts agree with probability"
            " (1 - e)^2 + e^2, each is wrong with probability e, and no preference model trained on them agrees"
            " with new"
            " ones more often than 1 - e.",
            "换个顺序或再问一次，判决就变。若两次判决一致的概率是 (1 - e)² + e²，则每次出错的概率是 e，用它们训练的偏好"
            "模型与新判决的一致率不会超过 1 - e。",
        ),
        [
            (
                "Fewer than 75 % of pairs get the same verdict in both orders; under 65 % is critical.",
                "两种顺序判决相同的回答对不到 75 %；低于 65 % 为严重。",
            ),
            (
                "Fewer than 85 % of repeated questions get the same answer (heuristic).",
                "重复提问得到相同回答的不到 85 %（经验值）。",
            ),
            (
                "Source: Zheng et al. 2023 (not checked against the paper): GPT-4 65 %, GPT-3.5 46 %, Claude-v1 24 %"
                " consistent.",
                "来源：Zheng 等 2023（未与原文核对）：GPT-4 一致率 65 %，GPT-3.5 46 %，Claude-v1 24 %。",
            ),
        ],
        [
            ("Honest ties: a tie against a winner counts half here.", "本来就难分：一次平局、一次分胜负只算半个矛盾。"),
            (
                "A scalar preference model: it does not see the order and cannot be inconsistent in it.",
                "标量偏好模型：它看不到顺序，谈不上顺序不一致。",
            ),
        ],
    ),
    **page(
        "judge-disagreement",
        ("The judge disagrees with people", "评判模型与人不一致"),
        (
            "Its verdicts differ from reference labels, or several raters differ among each other, more than two"
            " people do.",
            "它的判决与参考标签的差别，或多位评判者之间的差别，超过了两个人之间的差别。",
        ),
        [
            (
                "Agreement with reference labels whose interval ends under 66 %, the agreement of two people.",
                "与参考标签的一致率，其区间上限低于两个人之间的 66 %。",
            ),
            (
                "Krippendorff's alpha of several raters under 0.4 (poor) or 0.667 (tentative; bands not checked against"
                " the book).",
                "多位评判者的 Krippendorff α 低于 0.4（差）或 0.667（仅供参考；阈值未与原文核对）。",
            ),
        ],
        [
            (
                "A set that is hard on purpose, or reference labels that are wrong.",
                "故意出难题的数据，或参考标签本身有错。",
            ),
            ("Swapped labels: then agreement is far below one half.", "标签弄反：此时一致率远低于一半。"),
        ],
    ),
    **page(
        "judge-length-bias",
        ("The judge pays for length", "评判模型偏爱长度"),
        (
            "The longer response wins more often than with people on the same kind of pairs. Labels hand this on to the"
            " preference model, and the policy turns it up.",
            "与人相比，较长的回答更常获胜。标签把这一偏向传给偏好模型，策略再把它放大。",
        ),
        [
            (
                "The longer one wins 65 % or more, beyond three standard errors, and 3 points more than by the"
                " reference"
                " labels or people (64 %); from 85 % on it is critical.",
                "较长者胜率达 65 % 以上、超过三个标准误，且比参考标签或人（64 %）高 3 个百分点；达到 85 % 为严重。",
            ),
            ("Source: AlpacaEval's annotator table.", "来源：AlpacaEval 的评判者统计。"),
        ],
        [
            (
                "Longer responses that are better: the reference labels on the same pairs tell.",
                "长回答确实更好：看同样回答对上的参考标签。",
            )
        ],
    ),
    **page(
        "judge-self-preference",
        ("The judge prefers itself", "评判模型偏爱自己"),
        (
            "Responses by the judge's own model or family win more often with it than with others. Labels then"
            " teach the"
            " policy to sound like the judge.",
            "评判模型自己（或同系列）写的回答，在它手里比在别人手里更常获胜。标签于是在教策略模仿评判模型的腔调。",
        ),
        [
            (
                "Its own responses win more than 60 %, beyond three standard errors and beyond what others give"
                " them; above 75 %"
                " is critical (heuristic).",
                "自己的回答胜率超过 60 %，超过三个标准误，且高于别人给的；超过 75 % 为严重（经验值）。",
            )
        ],
        [
            (
                "Its responses may be better: only other judges or reference labels on the same pairs can tell.",
                "它的回答可能确实更好：只有其他评判者或参考标签在同样回答对上才能判断。",
            )
        ],
    ),
    **page(
        "judge-unparsed",
        ("Calls without a verdict", "调用没有判决"),
        (
            "Many answers of the judge cannot be read, are refusals, or failed. What is left is not a fair sample.",
            "评判模型的许多回答无法解析、是拒答或调用失败。剩下的不再是公平的样本。",
        ),
        [
            (
                "More than 5 % of the calls gave no verdict; above 20 % is critical (heuristic).",
                "5 % 以上的调用没有判决；超过 20 % 为严重（经验值）。",
            )
        ],
        [
            (
                "A server that was down: errors are asked again, unreadable answers are not.",
                "服务端故障：出错的会重问，无法解析的不会。",
            )
        ],
    ),
    **page(
        "judge-template-sensitivity",
        ("The verdict depends on the wording", "判决取决于措辞"),
        (
            "Another wording of the same instructions changes more verdicts than asking again does.",
            "同样的指令换一种措辞，改变的判决比重复提问还多。",
        ),
        [
            (
                "The rate of changes between templates exceeds that between repeats, p under 0.01 (heuristic).",
                "模板之间的改变率高于重复之间的改变率，p 小于 0.01（经验值）。",
            )
        ],
        [
            ("The judge's own noise: measure repeats of one wording.", "评判模型自身的噪声：先测同一措辞的重复。"),
            ("Templates that ask for different things.", "几个模板问的其实不是同一件事。"),
        ],
    ),
    **page(
        "low-diversity",
        ("The pairs are too much alike", "数据过于单一"),
        (
            "Pairs repeat each other, come from few prompts, or the same response wins everywhere. The preference model"
            " sees less than the number of pairs promises.",
            "回答对彼此重复、只来自少数提示，或到处都是同一个回答获胜。偏好模型见到的比数量看上去的少。",
        ),
        [
            (
                "More than 10 % repeated pairs; under 30 effective prompts in 300 pairs or more; one response"
                " chosen for more than"
                " 20 % of the prompts (all heuristic).",
                "重复回答对超过 10 %；300 对以上而有效提示不到 30 个；同一回答在 20 %"
                " 以上的提示上被选中（均为经验值）。",
            )
        ],
        [
            ("Several labels for one pair, collected on purpose.", "特意为同一回答对收集的多份标签。"),
            ("A narrow task.", "任务本来就窄。"),
        ],
    ),
    **page(
        "noisy-labels",
        ("Labels are wrong at random", "标签有噪声"),
        (
            "A share of the labels is wrong whatever the pair. Close calls are not counted: a preference model errs on"
            " them honestly, and less and less as the margin grows; wrong labels stay.",
            "有一部分标签是随机错的。难分的情形不算：偏好模型在那里出错很正常，并会随分差增大而减少；错误的标签不会。",
        ),
        [
            (
                "Repeated pairs: a share c with both labels means an error rate e with c = 2 e (1 - e); warning"
                " above 0.10"
                " (heuristic).",
                "重复标注：标签相反的比例 c 对应错误率 e，c = 2e(1 - e)；e 高于 0.10 报警（经验值）。",
            ),
            (
                "Scores: labels that disagree with the largest margins as often as with smaller ones.",
                "分数：分差最大处与标签相反的比例并不比小处低。",
            ),
        ],
        [
            (
                "A preference model that is wrong about a kind of response: look at the pairs themselves.",
                "偏好模型对某类回答判断有误：请直接看这些回答对。",
            )
        ],
    ),
}
"""By `<finding-id>.<part>`."""
