"""Explanations: value and reward, direct preference optimisation, evaluation, the log itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text
from trimtab.doctor.messages.explain_words import page

__all__ = ["REST"]

REST: Final[Mapping[str, Text]] = {
    **page(
        "value-not-learning",
        ("The value model explains nothing", "价值模型什么都没学到"),
        (
            "Values do not predict returns better than their mean does. Advantages are then as noisy as the returns"
            " themselves, or worse.",
            "价值估计对回报的预测不比平均值好。优势于是和回报本身一样吵，甚至更糟。",
        ),
        [
            (
                "Explained variance under 0 after a tenth of the run, critical at its end; 0.5 and more is good.",
                "训练十分之一之后解释方差仍小于 0，结束时仍是则为严重；0.5 以上为好。",
            ),
            (
                "Where it is not logged: a value loss that ends at more than 0.9 of its start while the score moves.",
                "没有记录时：分数在动，而价值损失最后仍在开始的 0.9 以上。",
            ),
        ],
        [
            (
                "Returns that hardly vary: explained variance means nothing then.",
                "回报几乎不变：此时解释方差没有意义。",
            ),
            ("A cold start.", "刚开始训练。"),
        ],
    ),
    **page(
        "no-reward-signal",
        ("Nothing to learn from", "没有奖励信号"),
        (
            "Scores are all alike: within each group, or altogether. Without differences there are no advantages.",
            "分数全都一样：组内一样，或整体一样。没有差别就没有优势。",
        ),
        [
            (
                "More than half of the groups without any spread, critical above 80 %; or a variance of rewards"
                " under 1e-6.",
                "一半以上的组没有任何差别，超过 80 % 为严重；或奖励方差低于 1e-6。",
            )
        ],
        [
            (
                "Tasks that are mostly solved: 30 to 40 % of groups alike is healthy.",
                "任务大多已解决：30 % 至 40 % 的组同分属正常。",
            ),
            (
                "The spread over the whole batch is not the spread within groups.",
                "整批的离散程度不等于组内的离散程度。",
            ),
        ],
    ),
    **page(
        "reward-scale",
        ("Rewards of the wrong size", "奖励尺度不当"),
        (
            "Scores are so large or so small that value loss, KL penalty and clip ranges no longer fit them.",
            "分数过大或过小，价值损失、KL 惩罚、截断范围都不再匹配。",
        ),
        [
            (
                "A deviation above 10 or under 0.01, or a mean far above it, without normalisation (heuristic).",
                "没有归一化，而标准差大于 10 或小于 0.01，或均值远大于它（经验值）。",
            )
        ],
        [
            (
                "Critic-free methods divide by the group's deviation: the scale is of no matter there.",
                "无价值模型的方法会除以组内标准差：尺度无关紧要。",
            )
        ],
    ),
    **page(
        "reward-noise",
        ("The score is mostly noise", "奖励噪声过大"),
        (
            "The change of the score is small against its scatter from batch to batch.",
            "与批次间的波动相比，分数的变化很小。",
        ),
        [
            (
                "The gain over the run is under the standard error that the batch size allows (heuristic).",
                "整个训练的提升小于批大小所允许的标准误（经验值）。",
            )
        ],
        [("Prompts of very different difficulty: compare within prompts.", "提示难度差别很大：应在同一提示内比较。")],
    ),
    **page(
        "advantage-not-centred",
        ("Advantages without a baseline", "优势没有居中"),
        (
            "Group-relative advantages should average 0. Here they equal the scores: groups of one, or a wrong"
            " group index."
            " Every response with a score above 0 is then reinforced, good or bad.",
            "组内相对优势的均值应为 0。这里它们等于分数本身：每组只有一个回答，或分组编号错误。于是只要分数大于 0，"
            "不论好坏都被强化。",
        ),
        [
            (
                "The mean advantage equals the mean score (within 0.002) on more than 30 % of the steps.",
                "30 % 以上的步里，平均优势等于平均分数（相差 0.002 以内）。",
            ),
            ("Source: Search-R1 issue 88.", "来源：Search-R1 issue 88。"),
        ],
        [("REINFORCE without a baseline by choice.", "有意不用基线的 REINFORCE。")],
    ),
    **page(
        "reference-mismatch",
        ("The reference is not the starting point", "参考模型不是起点"),
        (
            "At the first step policy and reference should be the same model: implicit rewards are 0. They are not:"
            " another checkpoint, an unmerged adapter, another template or precision.",
            "第一步时策略与参考模型应是同一个模型，隐式奖励为 0。这里不是：检查点不同、适配器未合并、模板或精度不同。",
        ),
        [
            (
                "A chosen reward beyond 1 (beta 0.1) at the first log (TRL issue 1236: 9.77).",
                "第一次记录时被选回答的奖励就超过 1（beta 0.1；TRL issue 1236 为 9.77）。",
            )
        ],
        [("A log that does not begin at the start.", "日志不是从头开始的。")],
    ),
    **page(
        "preference-overfit",
        ("The pairs are solved at once", "偏好对瞬间被背下来"),
        (
            "Accuracy reaches 1 and the loss 0 within a fraction of an epoch: the pairs are too easy, or are being"
            " memorised. Margins then grow without bound and behaviour does not improve.",
            "不到一轮正确率就到 1、损失到 0：回答对太容易，或正在被背下来。之后分差无限增大，行为并不改善。",
        ),
        [
            (
                "Training accuracy near 1 with a loss under 0.01 within a tenth of an epoch, or a held-out loss"
                " that rises.",
                "十分之一轮之内训练正确率接近 1 且损失低于 0.01，或留出损失上升。",
            )
        ],
        [
            (
                "A negative chosen reward alone: margin and accuracy are what counts.",
                "仅仅是被选奖励为负：要看分差和正确率。",
            )
        ],
    ),
    **page(
        "preference-not-generalising",
        ("What is learned does not carry over", "学到的东西不能推广"),
        (
            "Training pairs are told apart, held-out pairs hardly better than by a coin.",
            "训练用的回答对分得开，留出的回答对几乎和抛硬币一样。",
        ),
        [
            (
                "Held-out accuracy whose interval includes 0.5, or a gap to training accuracy above 0.10 beyond"
                " chance.",
                "留出正确率的区间包含 0.5，或与训练正确率相差 0.10 以上且不是偶然。",
            )
        ],
        [
            ("A held-out set of under a hundred pairs.", "留出集不到一百对。"),
            ("Held-out pairs of another kind.", "留出的回答对属于另一类。"),
        ],
    ),
    **page(
        "likelihood-displacement",
        ("The chosen responses become unlikely too", "被选回答的概率也在下沉"),
        (
            "The margin grows because the rejected response falls faster, while the chosen one falls as well."
            " Probability"
            " goes to responses that nobody labeled (Razin 2024, not checked against the paper).",
            "分差增大只是因为落选回答掉得更快，被选回答也在掉。概率流向了没有人标注过的回答（Razin 2024，"
            "未与原文核对）。",
        ),
        [
            (
                "The chosen log-probability falls by more than 20 %, or by more than a nat a token, with a chosen"
                " reward under -1"
                " and a margin that rises.",
                "被选回答的对数概率下降 20 % 以上，或每词元超过 1 奈特，同时其奖励低于 -1 而分差上升。",
            )
        ],
        [
            (
                "A mild fall: DPO's authors call it expected; margin and accuracy decide.",
                "轻微下降：DPO 作者认为正常；看分差和正确率。",
            )
        ],
    ),
    **page(
        "alignment-tax",
        ("General ability is lost", "对齐税"),
        (
            "Benchmarks of other abilities fall by more than their noise.",
            "其他能力的基准测试下降，超出其噪声。",
        ),
        [
            (
                "A drop of more than one point and two standard errors; 10 to 20 points mean a broken set-up"
                " (rlhf-book).",
                "下降超过一个百分点且超过两个标准误；下降 10 至 20 个百分点说明设置有误（rlhf-book）。",
            )
        ],
        [("A parser that no longer recognises the format of the answers.", "解析器认不出新的回答格式。")],
    ),
    **page(
        "benchmark-overfitting",
        ("The benchmark is learned, not the ability", "学会了基准，而不是能力"),
        (
            "The public test improves, a fresh or reworded version of it does not.",
            "公开测试提高了，而全新的或改写过的版本没有。",
        ),
        [
            (
                "A gap to the fresh variant above two standard errors; more than 1 % overlap of 13-grams with the"
                " training data.",
                "与新版本的差距超过两个标准误；与训练数据的 13 元词组重合超过 1 %。",
            )
        ],
        [("A variant that is harder.", "改写后的版本更难。")],
    ),
    **page(
        "invalid-metric",
        ("A number that cannot be", "不可能的数值"),
        (
            "A signal has a value that its definition excludes: entropy below 0, a clip fraction of 1 with a KL of"
            " 0. The"
            " signal is computed wrongly; nothing can be read from it, and other checks leave it out.",
            "信号取了定义上不可能的值：熵小于 0、截断比例为 1 而 KL 为 0。信号算错了，不能用来判断，"
            "其他检查也会跳过它。",
        ),
        [("The definition itself.", "定义本身。")],
        [
            (
                "A signal of another meaning under a familiar name (minus entropy in SB3): name it with --map.",
                "名字熟悉但含义不同的信号（SB3 记录的是负熵）：用 --map 说明。",
            )
        ],
    ),
    **page(
        "unit-unknown",
        ("It is not said what a number counts", "单位不明"),
        (
            "A signal could be per token or per sequence, and nothing in the log tells which. Checks that depend on"
            " it are"
            " not made rather than made wrongly.",
            "信号可能按词元计，也可能按序列计，日志里没有说明。依赖它的检查宁可不做，也不乱做。",
        ),
        [
            (
                "Neither the framework, nor the name, nor the length of responses tells the unit.",
                "框架、名称、回答长度都无法确定单位。",
            )
        ],
        [
            (
                "A key that changed its meaning between releases: --map says which one this is.",
                "不同版本里含义不同的键：用 --map 说明是哪一种。",
            )
        ],
    ),
    **page(
        "log-truncated",
        ("The log ends in the middle", "日志中断"),
        (
            "The file stops inside a record. What could be read was read; the end of the run is not in it.",
            "文件在一条记录中间结束。能读的都读了，但训练的结尾不在里面。",
        ),
        [("A last line or a JSON list that is not closed.", "最后一行或 JSON 列表没有结束。")],
        [("A run that is still being written.", "运行仍在写入。")],
    ),
}
"""By `<finding-id>.<part>`."""
