"""Hacking, drift from the reference, single updates, entropy."""

from __future__ import annotations

from trimtab.doctor.messages import Text

__all__ = ["MESSAGES"]

MESSAGES: dict[str, Text] = {
    "reward-hacking.cause": Text(
        "The score still rises while {measure}, which nothing trains on, falls: the policy has learned what the scorer "
        "likes, not what it should measure.",
        "得分仍在上升，而不参与训练的 {measure} 却在下降：策略学会的是讨好打分器，而不是打分器本应衡量的东西。",
    ),
    "reward-hacking.floor": Text(
        "{scorer} gives credit to responses to which {measure}, which nothing trains on, gives none: the scorer "
        "rewards something else.",
        "{scorer} 认可的回复，不参与训练的 {measure} 并不认可：打分器奖励的是别的东西。",
    ),
    "reward-hacking.suspicion": Text(
        "The score has risen together with length or KL. From the score alone hacking and honest learning look the "
        "same: score some 200 held-out responses with a judge or a check that nothing trains on and log it as "
        "eval/<measure>.",
        "得分与长度或 KL 一同上升。仅凭得分无法区分奖励作弊与正常学习：请用不参与训练的评判或检查给约 200 条留出提示"
        "的回复打分，并记为 eval/<measure>。",
    ),
    "reward-hacking.not-noise": Text(
        "Not noise of the measure: it fell by {drop}, against a standard error of {error}.",
        "不是该指标的噪声：下降 {drop}，标准误为 {error}。",
    ),
    "reward-hacking.not-hard": Text(
        "Not a task that is only too hard: {scorer} finds responses right all the same.",
        "不只是任务太难：{scorer} 仍判定有回复正确。",
    ),
    "reward-hacking.not-convergence": Text(
        "Not plain convergence: there both would level off together.", "不是单纯收敛：若是收敛，两者会一起趋平。"
    ),
    "length-exploitation.cause": Text(
        "Longer responses are what earns the score: length set in first, the score follows it, and the growth is paid "
        "for elsewhere.",
        "得分是靠变长换来的：长度先增长，得分随之上升，代价则由别处承担。",
    ),
    "length-exploitation.watch": Text(
        "Responses have grown by half or more while the score rose. That may be earned (longer reasoning): compare "
        "scores at equal length, or log an independent measure.",
        "得分上升的同时，回复长度增加了一半以上。这可能是合理的（推理更长）：请在相同长度下比较得分，或记录一个独立指标。",
    ),
    "length-exploitation.not-earned": Text(
        "Not length that was earned: that does not come with cut-off responses, lost entropy, a KL out of bounds or a "
        "score that follows each batch's length.",
        "不是合理的变长：合理变长不会伴随截断增多、熵丧失、KL 越界，得分也不会逐批跟着长度走。",
    ),
    "repetitive-outputs.cause": Text(
        "The policy says the same things over and over: it has found wording that scores well and repeats it.",
        "策略在反复说同样的话：它找到了高分措辞并不断重复。",
    ),
    "repetitive-outputs.not-template": Text(
        "Not a template that the task asks for: that would have been there from the start.",
        "不是任务要求的模板：若是模板，从一开始就会存在。",
    ),
    "repetitive-outputs.not-short": Text(
        "Not short responses alone: the measure is compared with its own start.",
        "不只是回复变短：该指标与自身起点相比较。",
    ),
    "style-exploitation.cause": Text(
        "The rate of {style} has more than doubled while the score rose: the scorer pays for the phrase, not for what "
        "is said.",
        "{style} 的出现率增加一倍以上，得分同时上升：打分器在为措辞付分，而不是为内容付分。",
    ),
    "style-exploitation.not-prompts": Text(
        "Not other prompts: the change is gradual and lasts; compare with the fine-tuned model on the same prompts to "
        "be sure.",
        "不是提示变了：变化是渐进且持续的；可在相同提示上与微调模型对比确认。",
    ),
    "sycophancy.cause": Text(
        "Agreement with whatever the user says ({style}) has risen by more than a tenth: agreeing is rewarded.",
        "迎合用户说法的比例（{style}）上升超过十个百分点：附和得到了奖励。",
    ),
    "sycophancy.not-prompts": Text(
        "Not other prompts: the change is gradual and lasts.", "不是提示变了：变化是渐进且持续的。"
    ),
    "kl-explosion.cause": Text(
        "The policy has left the reference: the KL penalty is too weak for the learning rate, or an estimator or "
        "log-probability is wrong.",
        "策略已远离参考模型：KL 惩罚相对学习率过弱，或估计量、对数概率有误。",
    ),
    "kl-explosion.speed": Text(
        "KL keeps doubling: at this pace it passes {bound} about step {due}.",
        "KL 不断翻倍：照此速度约在第 {due} 步超过 {bound}。",
    ),
    "kl-explosion.free": Text(
        "KL is past {bound}, but its coefficient is 0 by choice and the score has not suffered.",
        "KL 已超过 {bound}，但其系数按设定为 0，得分也未受损。",
    ),
    "kl-explosion.not-spike": Text(
        "Not single spikes, which k3 is prone to: a running median lies above the bound as well.",
        "不是单个尖峰（k3 估计常有）：滑动中位数同样越界。",
    ),
    "kl-explosion.not-unit": Text(
        "Not a mistaken unit: the series is known to be in {unit}.", "不是单位弄错：该序列的单位确定为 {unit}。"
    ),
    "negative-kl.cause": Text(
        "The samples do not come from the policy whose log-probabilities are taken: top-k, top-p, a minimum length or "
        "a temperature in sampling only; a wrong padding token; dropout or another precision in one of the models.",
        "采样并非来自计算对数概率的那个策略：仅在采样时用了 top-k、top-p、最小长度或温度；填充符有误；"
        "或某个模型开着 dropout、精度不同。",
    ),
    "negative-kl.not-noise": Text(
        "Not sampling noise, which keeps the mean near 0: the level itself is below {bound}.",
        "不是采样噪声（噪声下均值应接近 0）：其水平本身低于 {bound}。",
    ),
    "policy-not-moving.cause": Text(
        "The policy has stayed the reference and the score has not moved: the learning rate is too small, or the "
        "parameters that are trained are not the ones that sample.",
        "策略一直等同于参考模型，得分也没有变化：学习率过小，或被训练的参数并不是用来采样的参数。",
    ),
    "policy-not-moving.direct": Text(
        "The loss has stayed at ln 2, which is that of a policy that still is the reference: nothing has been learned "
        "from the pairs. The learning rate is too small, or what is trained is not what is compared.",
        "损失一直停在 ln 2，即策略仍与参考模型相同时的值：没有从偏好对中学到东西。学习率过小，或被训练的参数"
        "并未参与比较。",
    ),
    "policy-not-moving.not-warm-up": Text(
        "Not the start of a run, where a loss of ln 2 is usual: {rows} log points have passed.",
        "不是训练刚开始（此时损失为 ln 2 很正常）：已有 {rows} 个记录点。",
    ),
    "policy-not-moving.not-start": Text(
        "Not the start of a run, where KL is 0 anyway: the first fifth was left out.",
        "不是训练刚开始（此时 KL 本来为 0）：已略去前五分之一。",
    ),
    "policy-not-moving.not-one-update": Text(
        "Not one update a batch, which makes the step from old to new policy trivially 0: the distance from the "
        "reference decides where it is logged.",
        "不是每批只更新一次（那会使新旧策略差恒为 0）：有记录时以与参考模型的距离为准。",
    ),
    "over-constrained.cause": Text(
        "The KL penalty eats what the score has to give: the policy is held where it is.",
        "KL 惩罚吃掉了得分所能带来的收益：策略被按在原地。",
    ),
    "over-constrained.not-ceiling": Text(
        "Not a score at its ceiling: it has gained less than half the spread of single responses.",
        "不是得分到顶：其增幅不到单条回复离散度的一半。",
    ),
    "over-constrained.not-still": Text(
        "Not a policy that does not move: its KL is above 0, and held level.",
        "不是策略不动：其 KL 大于 0，只是被压平。",
    ),
    "ratio-blow-up.cause": Text(
        "One batch changes the policy beyond what PPO's clip can bound: too large a learning rate, too many epochs, or "
        "old log-probabilities of another model.",
        "单个批次就让策略变化超出 PPO 裁剪所能约束的范围：学习率过大、轮数过多，或旧对数概率来自别的模型。",
    ),
    "ratio-blow-up.not-drift": Text(
        "Not the usual drift over epochs: that stays within some hundredths of 1.",
        "不是多轮更新的正常漂移：那只会偏离 1 百分之几。",
    ),
    "logprob-mismatch.cause": Text(
        "The log-probabilities of sampling and of training do not agree: another engine, precision, temperature, mask "
        "or stale weights. Every ratio, KL and advantage weight rests on them.",
        "采样与训练的对数概率不一致：引擎、精度、温度、掩码不同，或权重未同步。所有比率、KL 和优势加权都建立在它之上。",
    ),
    "logprob-mismatch.not-epochs": Text(
        "Not several epochs on one batch: the gap is there before the first update, or does not shrink with the "
        "learning rate.",
        "不是同一批次多轮更新造成：差异在首次更新前就存在，或不随学习率减小。",
    ),
    "logprob-mismatch.not-spike": Text("Not single spikes: the level counts.", "不是单个尖峰：以整体水平为准。"),
    "clip-fraction-high.cause": Text(
        "More than three tokens in ten hit the clip: each batch pushes the policy further than the clip range allows.",
        "超过三成的词元触及裁剪：每个批次都在把策略推出裁剪范围。",
    ),
    "clip-fraction-high.not-metric": Text(
        "Not a wrong metric: the policy does move.", "不是指标错误：策略确实在变化。"
    ),
    "clip-fraction-high.not-one-update": Text(
        "Not one update a batch: then nothing could be clipped.", "不是每批只更新一次：那样不可能有裁剪。"
    ),
    "entropy-collapse.cause": Text(
        "The policy has stopped exploring: it samples next to the same response each time, and the score no longer "
        "gains from it.",
        "策略已停止探索：每次采样几乎相同，得分也不再因此提高。",
    ),
    "entropy-collapse.benign": Text(
        "Entropy is near 0, but the score still gains or is at its best: the policy has become sure of itself. Keep an "
        "eye on it.",
        "熵接近 0，但得分仍在提高或处于最佳：策略只是变得确定。请继续关注。",
    ),
    "entropy-collapse.not-narrow-start": Text(
        "Not a narrow start after fine-tuning: entropy began at {start}.", "不是微调后起点就窄：熵起初为 {start}。"
    ),
    "entropy-collapse.not-learning": Text(
        "Not learning alone: a second sign of harm goes with it.", "不只是学习所致：同时还有另一个受损迹象。"
    ),
    "entropy-explosion.cause": Text(
        "The policy becomes more and more random while the score does not gain: an entropy bonus too large, a learning "
        "rate too high, or noise as its main signal.",
        "策略越来越随机而得分没有提高：熵奖励过大、学习率过高，或主要在拟合噪声。",
    ),
    "entropy-explosion.benign": Text(
        "Entropy has more than doubled while the score still rises.", "熵已增加一倍以上，但得分仍在上升。"
    ),
    "entropy-explosion.not-bonus": Text(
        "Not what an entropy bonus does in a sound run: there the score rises with it.",
        "不是正常训练中熵奖励的效果：那时得分会随之上升。",
    ),
    "entropy-explosion.not-exploring": Text(
        "Not exploring at the start: it is highest at the end.", "不是开始阶段的探索：熵在末段最高。"
    ),
}
