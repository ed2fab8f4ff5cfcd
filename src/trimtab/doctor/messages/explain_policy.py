"""Explanations: the policy's training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text
from trimtab.doctor.messages.explain_words import page

__all__ = ["POLICY"]

POLICY: Final[Mapping[str, Text]] = {
    **page(
        "kl-explosion",
        ("The policy runs away from the reference", "策略远离参考模型"),
        (
            "KL to the reference grows beyond what the reward can pay for, or grows ever faster. The preference"
            " model was"
            " trained on responses of the reference; far from it, its scores mean little.",
            "对参考模型的 KL 增长超过了奖励所值，或越来越快。偏好模型是在参考模型的回答上训练的；走得太远，"
            "它的分数就没有多少意义。",
        ),
        [
            (
                "More than twice the target for five logs, or above 30 to 50 nats a sequence, or above 0.5 nats a"
                " token.",
                "连续五次超过目标的两倍，或每序列 30 至 50 奈特以上，或每词元 0.5 奈特以上。",
            ),
            (
                "Speed: KL per token doubles within five logs twice in a row (heuristic).",
                "速度：每词元 KL 在五次记录内翻倍，连续两回（经验值）。",
            ),
            (
                "Sources: TRL's FAQ (between 0 and 10 nats a sequence), lm-human-preferences (target 6).",
                "来源：TRL 的常见问题（每序列 0 到 10 奈特）、lm-human-preferences（目标 6）。",
            ),
        ],
        [
            (
                "Single spikes of the k3 estimator, which has a fat tail: look at the median.",
                "k3 估计的单个尖峰，它有厚尾：看中位数。",
            ),
            ("A sum over long responses: compare nats per token.", "长回答上的求和：应比较每词元奈特数。"),
            (
                "A run without a KL penalty on purpose (beta 0): then it is only information.",
                "有意不加 KL 惩罚（beta 为 0）：此时仅作提示。",
            ),
        ],
    ),
    **page(
        "negative-kl",
        ("An impossible KL: below 0", "KL 为负"),
        (
            "The mean log-ratio of samples drawn from the policy estimates KL(policy || reference), which is never"
            " below"
            " 0. Well below 0 means that the samples are not from the policy, or that masks or models differ. The"
            " policy"
            " can then gain reward by becoming less likely.",
            "用策略自己的样本计算的平均对数比估计的是 KL(策略 || 参考)，不会小于 0。明显为负说明样本并非来自该策略，"
            "或掩码、"
            "模型不一致。这时策略可以靠降低自己样本的概率来赚奖励。",
        ),
        [
            (
                "Under -1 nats a sequence, or under a tenth of its largest size, for three logs; any value under -10.",
                "连续三次低于每序列 -1 奈特，或低于其最大幅度的负十分之一；任何一次低于 -10。",
            ),
            ("Source: TRL warned from -1 on.", "来源：TRL 从 -1 起发出警告。"),
        ],
        [
            (
                "Noise around 0: the k1 estimate of a small batch may be slightly negative.",
                "0 附近的噪声：小批的 k1 估计可能略小于 0。",
            )
        ],
    ),
    **page(
        "policy-not-moving",
        ("The policy stays where it is", "策略没有变化"),
        (
            "KL to the reference stays at 0 and the score does not rise: updates do not reach the weights, or are"
            " far too"
            " small.",
            "对参考模型的 KL 一直是 0，分数也不升：更新没有作用到权重上，或者小得可以忽略。",
        ),
        [
            (
                "KL per token under 1e-4 over a fifth of the run after the warm-up, without a rise of the score.",
                "预热之后，每词元 KL 在五分之一以上的训练里低于 1e-4，分数没有上升。",
            )
        ],
        [
            ("The start of a run, or adapters whose product is 0 at first.", "训练刚开始，或适配器初始乘积为 0。"),
            (
                "One update a batch: then the KL between updates is 0 by construction; the KL to the reference"
                " still grows.",
                "每批只更新一次：更新间 KL 本来就是 0；但对参考模型的 KL 仍应增长。",
            ),
        ],
    ),
    **page(
        "over-constrained",
        ("The KL penalty stifles learning", "KL 惩罚压住了学习"),
        (
            "The policy could move, the gradient is alive, but the penalty eats the reward.",
            "策略本可以动，梯度也正常，但惩罚吃掉了奖励。",
        ),
        [
            (
                "beta times KL exceeds half of the scores' deviation, KL is flat and under its target, the score"
                " does not rise; or"
                " an adaptive beta sits at its ceiling (heuristic).",
                "beta 乘 KL 超过分数标准差的一半，KL 平稳且低于目标，分数不升；或自适应 beta 顶在上限（经验值）。",
            )
        ],
        [
            ("A score at its ceiling.", "分数已经到顶。"),
            ("A learning rate that is too low: then KL itself stays at 0.", "学习率太低：那样 KL 本身就停在 0。"),
        ],
    ),
    **page(
        "ratio-blow-up",
        ("Updates leave the samples behind", "概率比失控"),
        (
            "The ratio of new to old probabilities strays so far from 1 that the surrogate no longer describes the"
            " policy.",
            "新旧概率之比离 1 太远，代理目标已不能描述策略。",
        ),
        [
            (
                "A mean ratio above 2 or under 0.5, or a largest one above 10 (TRL skipped such batches).",
                "平均比大于 2 或小于 0.5，或最大比超过 10（TRL 会跳过这样的批次）。",
            ),
            ("In the first minibatch it must be 1 within 0.001.", "第一个小批里它必须是 1，误差 0.001 以内。"),
        ],
        [
            (
                "Old log-probabilities of another engine or temperature: see logprob-mismatch.",
                "旧对数概率来自另一个引擎或温度：见 logprob-mismatch。",
            )
        ],
    ),
    **page(
        "logprob-mismatch",
        ("Sampler and trainer disagree about the policy", "采样端与训练端的对数概率不一致"),
        (
            "The log-probabilities at sampling differ from those that the trainer computes for the same tokens."
            " Every ratio"
            " is then wrong from the first update on; runs collapse from it later.",
            "采样时的对数概率与训练端对同样词元算出的不同。于是从第一次更新起，所有概率比都是错的，训练往往稍后崩溃。",
        ),
        [
            (
                "A mean difference of log-probabilities above 0.03, critical above 0.1; 0.01 to 0.02 is usual"
                " between engines.",
                "对数概率的平均差高于 0.03，高于 0.1 为严重；不同引擎之间 0.01 至 0.02 属正常。",
            ),
            (
                "A KL between old and new policy above 0.01 at the first update of a batch (heuristic).",
                "每批第一次更新时新旧策略的 KL 高于 0.01（经验值）。",
            ),
            (
                "Sources: vime issue 64, NeMo-RL's and verl's documentation.",
                "来源：vime issue 64、NeMo-RL 与 verl 的文档。",
            ),
        ],
        [
            ("Training that is off-policy on purpose (asynchronous).", "有意的异策略训练（异步）。"),
            ("An average over several epochs instead of the first minibatch.", "记录的是多轮平均，而不是第一个小批。"),
        ],
    ),
    **page(
        "clip-fraction-high",
        ("Most of the update is clipped away", "截断比例过高"),
        (
            "A large share of tokens sits outside the clip range: steps are too large, or there are too many of them on"
            " one batch.",
            "大量词元落在截断范围之外：步子太大，或同一批数据上更新太多。",
        ),
        [
            (
                "Above 0.3, critical above 0.5; 0.01 to 0.2 is usual (folklore).",
                "高于 0.3，高于 0.5 为严重；通常为 0.01 至 0.2（经验之谈）。",
            )
        ],
        [
            (
                "Frameworks count differently: some only where the clipped term is the larger, some whenever the"
                " ratio is outside.",
                "各框架口径不同：有的只统计截断项起作用的，有的只要越界就算。",
            ),
            ("1.0 together with a KL of 0 is a broken metric.", "截断比例 1.0 而 KL 为 0，是指标坏了。"),
        ],
    ),
    **page(
        "entropy-collapse",
        ("The policy has stopped exploring", "熵塌缩"),
        (
            "Entropy is near 0 while the score no longer rises: every response to a prompt is the same, and there is"
            " nothing left to compare. Falling entropy alone is normal.",
            "熵接近 0 而分数不再上升：同一提示的回答全都一样，没有可比较的东西了。熵下降本身是正常的。",
        ),
        [
            (
                "Under 10 % of its start, or under 0.05 nats a token, with a flat or falling score or groups that"
                " are all alike.",
                "低于开始时的 10 %，或每词元 0.05 奈特以下，同时分数停滞、下降，或整组同分。",
            )
        ],
        [
            (
                "A narrow SFT start: a run may live at 0.03 nats and still learn.",
                "SFT 起点本来就窄：熵只有 0.03 奈特也可能照样学习。",
            ),
            ("A task with one right answer, solved.", "任务只有一个正确答案，且已经学会。"),
        ],
    ),
    **page(
        "entropy-explosion",
        ("The policy dissolves into noise", "熵爆炸"),
        (
            "Entropy rises and the score falls: the text becomes random.",
            "熵上升而分数下降：文本变得随机。",
        ),
        [
            (
                "Above twice its start, or above 1 to 2 nats a token and rising, with a falling score (rllm issue"
                " 116).",
                "超过开始时的两倍，或每词元 1 至 2 奈特且仍在上升，同时分数下降（rllm issue 116）。",
            )
        ],
        [
            ("A metric that averages over padding.", "把填充也平均进去的指标。"),
            ("A rise early on that the score pays for.", "初期的上升，且分数随之提高。"),
        ],
    ),
    **page(
        "no-gradient",
        ("The gradient is exactly 0", "梯度恰好为 0"),
        (
            "Scores vary, yet the gradient's norm is 0: nothing trainable is connected to the loss.",
            "分数有差别，梯度范数却是 0：没有可训练的东西连到损失上。",
        ),
        [
            (
                "A norm of 0 in two logs or more while rewards differ within groups.",
                "组内奖励不同，而范数连续两次以上为 0。",
            )
        ],
        [
            (
                "Groups whose scores are all alike: then 0 is right (see no-reward-signal).",
                "整组同分：此时 0 是对的（见 no-reward-signal）。",
            ),
            (
                "A loss of 0 at the start of GRPO is normal and says nothing.",
                "GRPO 开始时损失为 0 是正常的，说明不了什么。",
            ),
        ],
    ),
    **page(
        "exploding-gradients",
        ("Gradients far above their usual size", "梯度爆炸"),
        (
            "The norm before clipping spikes again and again. Clipping keeps the step small but its direction is"
            " that of a"
            " few tokens.",
            "裁剪前的范数一再飙升。裁剪能限制步长，但方向由少数词元决定。",
        ),
        [
            (
                "More than ten times the running median, or above 100, three times in fifty logs.",
                "五十次记录中，三次超过滑动中位数的十倍或超过 100。",
            )
        ],
        [
            ("The value model's norm, which starts high.", "价值模型的范数，开始时本来就高。"),
            ("The first steps.", "最初几步。"),
        ],
    ),
    **page(
        "nan-inf",
        ("NaN or infinity", "NaN 或无穷"),
        (
            "A loss or gradient is no number any more. The cause lies before: look at what grew just before the"
            " first one.",
            "损失或梯度不再是数。原因在此之前：看第一次出现前是什么在增长。",
        ),
        [
            (
                "NaN or infinity in loss or gradient norm for two steps or more.",
                "损失或梯度范数连续两步以上为 NaN 或无穷。",
            ),
            (
                'Responses that consist of one token id ("!!!!") come from weights that are NaN.',
                "回答全是同一个词元（“!!!!”）意味着权重已是 NaN。",
            ),
        ],
        [
            ("The mean of an empty set in a metric, with finite gradients.", "指标对空集取平均，而梯度正常。"),
            ("fp16's loss scale settling in the first twenty steps.", "fp16 损失缩放在前二十步内调整。"),
        ],
    ),
    **page(
        "diverging-loss",
        ("A loss grows without end", "损失发散"),
        (
            "The value loss (or, together with ratio or KL, the policy loss) grows over the second half of the run"
            " and the"
            " returns do not. The level of an RL loss alone says nothing.",
            "价值损失（或与概率比、KL 一起的策略损失）在后半程持续增长，而回报没有。"
            "强化学习损失的高低本身说明不了什么。",
        ),
        [
            (
                "The logarithm of the value loss rises with p under 0.01, and its last tenth is five times its"
                " first (heuristic).",
                "价值损失的对数显著上升（p 小于 0.01），最后十分之一是最初十分之一的五倍（经验值）。",
            )
        ],
        [
            ("Rewards that were rescaled.", "奖励的尺度变了。"),
            ("A value model that starts cold.", "价值模型刚开始训练。"),
        ],
    ),
    **page(
        "oscillating",
        ("Performance swings back and forth", "性能来回振荡"),
        (
            "Score or accuracy climbs and falls again and again without settling.",
            "分数或正确率反复升降，不收敛。",
        ),
        [
            (
                "Three drawdowns or more, each over 30 % of the range, after the trend is taken out (heuristic).",
                "去除趋势后，三次以上回撤，每次超过范围的 30 %（经验值）。",
            )
        ],
        [
            ("Small batches: noise does not swing, it jumps.", "批太小：噪声是乱跳，不是振荡。"),
            ("Prompts in a repeating order.", "提示按固定顺序循环。"),
        ],
    ),
    **page(
        "reward-not-improving",
        ("The score does not rise", "分数不上升"),
        (
            "Over the run the score shows no trend. Other findings usually say why: no signal, no movement, no"
            " value model.",
            "整个训练中分数没有趋势。通常由其他发现说明原因：没有信号、没有移动、价值模型不起作用。",
        ),
        [
            (
                "No trend over fifty logs or more (Mann-Kendall p above 0.1) and a change under a fifth of a"
                " deviation.",
                "五十次以上记录没有趋势（Mann-Kendall p 大于 0.1），且变化不到标准差的五分之一。",
            )
        ],
        [
            ("A score at its ceiling.", "分数已到顶。"),
            ("Too short a run to tell: then nothing is said.", "训练太短，看不出来：此时不下结论。"),
        ],
    ),
    **page(
        "reward-decreasing",
        ("The score falls", "分数下降"),
        (
            "The very quantity that is being maximised goes down: a sign error, steps that are too large, or a"
            " value model"
            " that misleads.",
            "正在最大化的量反而下降：符号写反、步子过大，或价值模型误导。",
        ),
        [
            (
                "A slope under 0 beyond its interval over the second half, or a fall by more than a deviation.",
                "后半程斜率显著小于 0，或下降超过一个标准差。",
            )
        ],
        [
            ("The reward after KL: it may fall while the score rises.", "扣除 KL 之后的奖励：分数上升时它也可能下降。"),
            ("Harder prompts later on.", "后面的提示更难。"),
        ],
    ),
}
"""By `<finding-id>.<part>`."""
