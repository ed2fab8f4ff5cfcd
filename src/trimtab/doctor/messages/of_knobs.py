"""Why a knob is turned, and what the knobs are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text

__all__ = ["KNOBS", "NAMES"]

KNOBS: Final[Mapping[str, Text]] = {
    "slower": Text(
        "Smaller steps keep the policy where its samples still speak for it.",
        "步子小一些，策略才不会走出采样数据所能支持的范围。",
    ),
    "faster": Text("The updates are too small to show.", "更新幅度太小，看不出效果。"),
    "decay-rate": Text(
        "A learning rate that falls to 0 lets the run settle instead of circling.",
        "让学习率降到 0，训练才会收敛，而不是来回打转。",
    ),
    "bigger-batch": Text(
        "Twice the responses an update halve the noise of its gradient.", "每次更新的回答数加倍，梯度噪声（方差）减半。"
    ),
    "larger-minibatch": Text(
        "Fewer, larger minibatches: fewer steps away from the policy that sampled.",
        "小批更大、更少：更新时离采样策略的步数更少。",
    ),
    "fewer-epochs": Text(
        "Each further pass over a rollout moves the policy further from the one that sampled it.",
        "每多过一遍采样数据，策略就离采样它的策略更远。",
    ),
    "clip-gradient": Text("Bounds the step that a single batch can cause.", "限制单个批次能造成的步长。"),
    "adam-epsilon": Text(
        "Tiny second moments early on blow the step up; a larger epsilon bounds it.",
        "训练初期二阶矩极小，会把步长放大；较大的 epsilon 可以限制它。",
    ),
    "stop-epochs": Text(
        "Ends the passes over a rollout once the policy has moved this far (heuristic 0.02).",
        "策略移动到这个程度后，就停止继续重复使用同一批采样（经验值 0.02）。",
    ),
    "bf16": Text(
        "The range of float32: no overflow, no loss scale.", "数值范围与 float32 相同：不会溢出，也不需要损失缩放。"
    ),
    "leash": Text("Pulls the policy back to where the reward was learned.", "把策略拉回奖励学习时所在的区域。"),
    "loosen": Text(
        "The KL penalty outweighs the reward; let the policy go further.", "KL 惩罚压过了奖励；放策略走远一些。"
    ),
    "steer-kl": Text(
        "A controller holds KL at this target (nats a sequence, 6 in lm-human-preferences) whatever the score's scale.",
        "由控制器把 KL 稳定在目标值（每序列奈特数，lm-human-preferences 用 6），与分数的尺度无关。",
    ),
    "raise-target": Text(
        "The controller holds KL so low that nothing can be learned.", "控制器把 KL 压得太低，什么也学不到。"
    ),
    "tame-estimator": Text(
        "k3 grows exponentially in the log-ratio: one token can carry the whole estimate.",
        "k3 随对数比指数增长：一个词元就可能左右整个估计。",
    ),
    "clip-higher": Text(
        "A wider upper clip lets unlikely tokens gain probability (as in DAPO).",
        "放宽上界，让低概率词元的概率也能上升（如 DAPO）。",
    ),
    "entropy-bonus": Text(
        "A small bonus keeps alternatives alive; larger ones make the text incoherent.",
        "少量熵奖励能保住其他可能；过大则文本会散乱。",
    ),
    "no-entropy-bonus": Text("The bonus pays for randomness itself.", "熵奖励是在为随机性本身付钱。"),
    "shorter-run": Text(
        "Stop before the policy leaves what the preference model knows; then label anew.",
        "在策略走出偏好模型所认识的范围之前停下，重新打标签后再继续。",
    ),
    # value model and advantages
    "value-slower": Text("The value model overshoots its returns.", "价值模型追过了头。"),
    "value-faster": Text(
        "The value model must be ahead of the policy: 3 to 10 times its learning rate is usual.",
        "价值模型要走在策略前面：学习率通常是策略的 3 到 10 倍。",
    ),
    "value-weight": Text(
        "Where weights are shared, the value loss drowns the policy's gradient.",
        "共享权重时，价值损失会淹没策略的梯度。",
    ),
    "value-weight-up": Text(
        "Where weights are shared, the value head gets too little of the gradient.",
        "共享权重时，价值头分到的梯度太少。",
    ),
    "value-clip": Text(
        "Bounds how far a value may move in one rollout; in units of the returns.",
        "限制一次采样内价值估计能移动多远；单位与回报相同。",
    ),
    "value-clip-looser": Text(
        "A clip tighter than the returns' spread keeps the value model from ever reaching them.",
        "截断比回报的波动还窄，价值模型永远追不上。",
    ),
    "value-normalise": Text(
        "Returns of mean 0 and deviation 1 suit any learning rate.", "把回报归一到均值 0、标准差 1，什么学习率都好用。"
    ),
    "value-warmup": Text(
        "Let the value model learn for some tens of steps before the policy moves.",
        "先让价值模型单独学几十步，再让策略动。",
    ),
    "value-init": Text(
        "Start the value model from the preference model, which already knows what scores well.",
        "价值模型从偏好模型初始化，它已经知道什么样的回答得分高。",
    ),
    "no-discount": Text(
        "A response is judged at its end: discounting hides the score from its first tokens.",
        "回答是在结尾打分的：折扣会让开头的词元看不到这个分。",
    ),
    "lambda-up": Text(
        "Near 1, advantages lean on real scores instead of a value model that explains nothing.",
        "接近 1 时，优势主要依据真实分数，而不是什么都解释不了的价值模型。",
    ),
    "lambda-down": Text(
        "Lower lambda trades noise for bias, where the value model is good.",
        "价值模型可靠时，降低 lambda 以一点偏差换取更小的噪声。",
    ),
    "whiten-advantages": Text(
        "Makes the size of the updates independent of the scores' scale.", "让更新幅度与分数的尺度无关。"
    ),
    "larger-group": Text(
        "More responses a prompt: a better baseline, and fewer groups that are all alike.",
        "每个提示多采几个回答：基线更准，整组同分的情况更少。",
    ),
    # reward
    "normalise-score": Text(
        "Scores centred and scaled by the reference's own responses (or running statistics).",
        "按参考模型自己的回答（或滑动统计）对分数做中心化和缩放。",
    ),
    "clip-score": Text(
        "Outliers stop paying: beyond this, more score is worth nothing (5 in DeepSpeed-Chat, 10 in OpenRLHF).",
        "极端值不再有利可图：超过这个范围，分再高也没有用（DeepSpeed-Chat 用 5，OpenRLHF 用 10）。",
    ),
    "whiten-reward": Text(
        "Token rewards of unit variance keep returns in the value model's range.",
        "让逐词元奖励的方差为 1，回报才落在价值模型的范围内。",
    ),
    "length-penalty": Text(
        "A price per token, about a tenth of the scores' deviation over a mean response, cancels what length buys.",
        "按词元收费，一个平均长度的回答约付出分数标准差的十分之一，抵消长度带来的好处。",
    ),
    "no-length-penalty": Text("The penalty makes the empty response the best one.", "长度惩罚让空回答成了最优。"),
    "missing-eos": Text(
        "A response that never ends must cost something (1.0 in TRL's documentation).",
        "不会结束的回答必须付出代价（TRL 文档用 1.0）。",
    ),
    "mask-truncated": Text(
        "Cut-off responses are no evidence of quality: leave them out of the loss.",
        "被截断的回答说明不了质量：不让它们进入损失。",
    ),
    "drop-flat": Text(
        "Groups whose scores are all equal carry no gradient; draw others instead (as in DAPO).",
        "整组同分没有梯度；换一组重采（如 DAPO）。",
    ),
    # sampling
    "sample-plainly": Text(
        "Sample at the temperature that log-probabilities are taken at, and explore enough to differ.",
        "采样温度与计算对数概率的温度一致，并保证足够的探索，让回答有差别。",
    ),
    "pure-sampling": Text(
        "Truncated sampling is not sampling from the policy: the log-ratio then has a bias below 0.",
        "截断采样不是从策略本身采样：对数比会系统地低于 0。",
    ),
    "more-room": Text("Responses need more tokens than they may take.", "回答需要的词元超过了上限。"),
    "importance-cap": Text(
        "Weigh tokens by trainer over sampler probability, capped at 2 (verl's documentation: 1.5 to 5).",
        "按“训练端概率 / 采样端概率”给词元加权，上限 2（verl 文档：1.5 至 5）。",
    ),
    "mix-language": Text(
        "A little language-model loss on general text keeps what the model could do before.",
        "混入少量通用文本的语言模型损失，保住原有能力。",
    ),
    # labels and preference model
    "both-orders": Text(
        "Ask with either response first and average: a lean to one place cancels.",
        "两种顺序各问一次取平均：位置偏向会相互抵消。",
    ),
    "drop-close": Text("Leave out pairs that the judge can hardly decide.", "去掉评判模型几乎分不出的回答对。"),
    "soft-labels": Text(
        "Train on probabilities (the share of votes), not on decisions: doubt stays doubt.",
        "用概率（得票比例）而不是判决来训练：拿不准的就保留为拿不准。",
    ),
    "smooth": Text(
        "Admits that some labels are wrong, so that no margin has to be infinite.",
        "承认有些标签是错的，分差就不必趋于无穷。",
    ),
    "pm-slower": Text(
        "A slower preference model learns the rule before the exceptions.", "学慢一点，偏好模型会先学规律，再学例外。"
    ),
    "pm-usual-rate": Text(
        "9e-6 to 1e-5 is usual for full fine-tuning, 1e-4 with adapters.",
        "全参数微调通常用 9e-6 到 1e-5，适配器用 1e-4。",
    ),
    "one-epoch": Text("One pass: preference data are memorised on the second.", "只过一遍：第二遍就开始背数据了。"),
    "decay": Text("Holds the weights back from fitting single pairs.", "约束权重，避免拟合个别回答对。"),
    "centre": Text(
        "Bradley-Terry leaves the level of scores free; a small term pins it at 0.",
        "Bradley-Terry 不约束分数的整体水平；加一个小项把它固定在 0。",
    ),
    "pair-temperature": Text("Two responses that hardly differ teach nothing.", "两个几乎一样的回答教不了什么。"),
    "sft-term": Text(
        "A likelihood term on the chosen response keeps its probability from sinking with the rejected one's.",
        "给被选回答加一个似然项，避免它的概率跟着落选回答一起下沉。",
    ),
}

NAMES: Final[Mapping[str, Text]] = {
    "learning_rate": Text("learning rate", "学习率"),
    "learning_rate_schedule": Text("learning-rate schedule", "学习率调度"),
    "warmup": Text("warm-up", "预热"),
    "batch_size": Text("batch size", "批大小"),
    "minibatches": Text("minibatches", "小批数"),
    "minibatch_size": Text("minibatch size", "小批大小"),
    "epochs": Text("passes over a rollout", "每批采样的重复次数"),
    "clip_range": Text("clip range", "截断范围"),
    "clip_range_high": Text("upper clip", "截断上界"),
    "dual_clip": Text("dual clip", "双重截断"),
    "gradient_clip": Text("gradient clip", "梯度裁剪"),
    "adam_epsilon": Text("Adam's epsilon", "Adam 的 epsilon"),
    "entropy_bonus": Text("entropy bonus", "熵奖励"),
    "iterations": Text("length of the run", "训练步数"),
    "dtype": Text("precision", "精度"),
    "beta": Text("KL coefficient", "KL 系数"),
    "kl_target": Text("KL target", "KL 目标"),
    "kl_estimator": Text("KL estimator", "KL 估计式"),
    "update_kl_stop": Text("early stop on the update's KL", "按更新 KL 提前停止"),
    "value_learning_rate": Text("learning rate of the value model", "价值模型的学习率"),
    "value_coef": Text("value-loss coefficient", "价值损失系数"),
    "value_clip": Text("value clip", "价值截断"),
    "value_normalisation": Text("value normalisation", "价值归一化"),
    "value_warmup": Text("warm-up of the value model", "价值模型预热"),
    "value_init": Text("initial weights of the value model", "价值模型的初始权重"),
    "gamma": Text("discount (gamma)", "折扣（gamma）"),
    "lambda": Text("GAE's lambda", "GAE 的 lambda"),
    "group_size": Text("responses a prompt", "每个提示的回答数"),
    "advantage_whitening": Text("whitening of advantages", "优势白化"),
    "score_normalisation": Text("normalisation of scores", "分数归一化"),
    "score_clip": Text("clip of scores", "分数截断"),
    "reward_whitening": Text("whitening of rewards", "奖励白化"),
    "length_penalty": Text("length penalty", "长度惩罚"),
    "missing_eos_penalty": Text("penalty for a missing EOS", "缺少 EOS 的惩罚"),
    "mask_truncated": Text("masking of cut-off responses", "屏蔽被截断的回答"),
    "drop_flat_groups": Text("dropping of groups that are all alike", "丢弃整组同分"),
    "temperature": Text("sampling temperature", "采样温度"),
    "top_k": Text("top-k", "top-k"),
    "top_p": Text("top-p", "top-p"),
    "max_new_tokens": Text("longest response", "最大回答长度"),
    "importance_cap": Text("importance weights of the sampler's mismatch", "采样端失配的重要性权重"),
    "language_loss_mix": Text("language-model loss mixed in", "混入的语言模型损失"),
    "both_orders": Text("both orders", "两种顺序"),
    "judge_model": Text("judge", "评判模型"),
    "least_gap": Text("least gap of a label", "标签的最小差距"),
    "votes": Text("votes in each order", "每种顺序的投票数"),
    "judge_templates": Text("wordings of the question", "提问的措辞"),
    "vote_aggregation": Text("aggregation of votes", "投票的汇总方式"),
    "pair_temperature": Text("temperature of the pairs", "回答对的采样温度"),
    "pairs_per_prompt": Text("pairs a prompt", "每个提示的回答对数"),
    "soft_labels": Text("soft labels", "软标签"),
    "label_smoothing": Text("label smoothing", "标签平滑"),
    "pm_learning_rate": Text("learning rate of the preference model", "偏好模型的学习率"),
    "pm_epochs": Text("epochs of the preference model", "偏好模型的训练轮数"),
    "pm_weight_decay": Text("weight decay of the preference model", "偏好模型的权重衰减"),
    "pm_centring": Text("centring of scores", "分数居中"),
    "pm_max_tokens": Text("longest input of the preference model", "偏好模型的最大输入长度"),
    "dpo_learning_rate": Text("learning rate", "学习率"),
    "dpo_beta": Text("DPO's beta", "DPO 的 beta"),
    "dpo_epochs": Text("epochs", "训练轮数"),
    "dpo_label_smoothing": Text("label smoothing", "标签平滑"),
    "dpo_sft_weight": Text("weight of the SFT term", "SFT 项的权重"),
}
