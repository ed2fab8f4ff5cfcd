"""What there is to check or to do where no knob helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text

__all__ = ["CHECKS"]

CHECKS: Final[Mapping[str, Text]] = {
    "roll-back": Text(
        "Go back to the last checkpoint before the onset (where an independent measure exists: to its best one).",
        "退回到起始点之前的最后一个检查点（有独立指标时，退回到该指标最好的那个）。",
    ),
    "fresh-pairs": Text(
        "Label pairs sampled from the present policy and retrain the preference model on them.",
        "从当前策略采样新的回答对，打标签后重新训练偏好模型。",
    ),
    "gate-bonus": Text(
        "Pay bonuses (format, style) only where the response is right, or cut their weight to a tenth.",
        "格式、风格等加分只在回答正确时给，或把权重降到十分之一。",
    ),
    "ensemble": Text(
        "Score with several preference models and take the mean less their spread.",
        "用多个偏好模型打分，取均值减去它们的离散程度。",
    ),
    "repetition-reward": Text(
        "Put a price on repetition into the reward, not into sampling.", "把对重复的惩罚放进奖励里，不要放进采样里。"
    ),
    "more-prompts": Text("Draw prompts from more sources and topics.", "从更多来源和话题取提示。"),
    "counterfactual-pairs": Text(
        "Add pairs of the same response with and without the phrase, labeled a tie.",
        "加入同一回答“带与不带这类措辞”的成对样本，标为平局。",
    ),
    "second-judge": Text(
        "Let a judge of another family label a sample, and compare.", "让另一系列的模型对一部分样本打标签，进行对照。"
    ),
    "balance-length": Text(
        "Balance the pairs: as many in which the shorter response is the better one.",
        "平衡数据：让“短的更好”与“长的更好”一样多。",
    ),
    "token-mean": Text(
        "Average the loss over tokens of the batch, not over each response: the latter makes long errors cheap.",
        "损失按整批词元平均，不要按每个回答平均：后者会让冗长的错误变得便宜。",
    ),
    "check-orientation": Text(
        "Check on ten pairs by hand which response each label means.", "手工核对十个回答对，看标签指的到底是哪个回答。"
    ),
    "check-pm-truncation": Text(
        "Check that truncation does not cut away the part in which the two responses differ.",
        "检查截断是否切掉了两个回答不同的那部分。",
    ),
    "pm-from-sft": Text(
        "Start the preference model from the SFT model, not from the base model.",
        "偏好模型从 SFT 模型初始化，而不是基座模型。",
    ),
    "more-pairs": Text("Label more pairs: some ten thousand are usual.", "多标一些回答对：通常需要一万左右。"),
    "bigger-backbone": Text(
        "A larger backbone, once labels and code are known to be right.", "确认标签和代码无误后，再换更大的主干模型。"
    ),
    "relabel": Text(
        "Have a sample labeled again: no model exceeds the agreement of its labelers.",
        "抽样重新标注：没有模型能超过标注者之间的一致率。",
    ),
    "stop-at-best": Text("Keep the checkpoint with the best held-out loss.", "保留留出集损失最小的检查点。"),
    "group-by-prompt": Text(
        "Keep all pairs of a prompt in one batch and on one side of the split.",
        "同一提示的回答对放进同一批，并且只在训练集或验证集之一。",
    ),
    "check-pooling": Text(
        "Check which token the score is read from: the last that counts, not padding.",
        "检查分数取自哪个词元：应是最后一个有效词元，而不是填充。",
    ),
    "diverse-pairs": Text(
        "Add pairs whose better response is of another style, and balance styles within pairs.",
        "加入“较好的回答是另一种风格”的回答对，并在对内平衡风格。",
    ),
    "paraphrase-pairs": Text("Add reworded copies of pairs with the same label.", "加入改写后的同标签回答对。"),
    "temperature-scale": Text(
        "Divide margins by the fitted temperature before they become probabilities or soft labels.",
        "先把分差除以拟合的温度，再当作概率或软标签使用。",
    ),
    "length-covariate": Text(
        "Report win rates with length controlled, and accuracy where the shorter response is the better one.",
        "报告控制长度后的胜率，以及“短的更好”的那部分上的正确率。",
    ),
    "majority": Text(
        "Have contradictory pairs labeled three times and take the majority, or drop them.",
        "自相矛盾的回答对标三次取多数，或者丢弃。",
    ),
    "rank-first": Text(
        "Fit one ranking a prompt (Bradley-Terry) and train on that.",
        "每个提示先拟合一个排序（Bradley-Terry），再用它训练。",
    ),
    # judge
    "logprob-verdict": Text(
        "Read the verdict from the probabilities of the two letters instead of from sampled text.",
        "从两个选项字母的概率读判决，而不是从采样的文本里解析。",
    ),
    "stronger-judge": Text(
        "Take a stronger judge, at least for pairs on which this one contradicts itself.",
        "换更强的评判模型，至少用在它自相矛盾的那些回答对上。",
    ),
    "repeat-votes": Text(
        "Ask three to five times at temperature 0 or from log-probabilities, and average.",
        "在温度 0 下（或用对数概率）问三到五次取平均。",
    ),
    "rubric": Text(
        "Make the instructions say what decides, with an example of each case, and measure again.",
        "把指令写清楚：凭什么定胜负，每种情况给一个例子，然后重新测量。",
    ),
    "weigh-raters": Text(
        "Weigh raters by how well they agree with the rest (Dawid-Skene).",
        "按各评判者与其他人的一致程度加权（Dawid-Skene）。",
    ),
    "judge-prompt-length": Text(
        "Tell the judge that length is no merit, and measure whether it helps.",
        "在指令里写明长度不是优点，并测量是否有效。",
    ),
    "judge-panel": Text("Average judges of different families.", "对不同系列的评判模型取平均。"),
    "other-family": Text(
        "Judge with a model of another family than the one that wrote the responses.",
        "评判模型与写回答的模型不要同一系列。",
    ),
    "hide-authors": Text(
        "Remove what gives the author away: names, signatures, formatting habits.",
        "去掉能看出作者的痕迹：名字、署名、排版习惯。",
    ),
    "structured-verdict": Text(
        "Ask for the verdict as structured output, and take the last one that can be read.",
        "要求结构化输出判决，并取最后一个可解析的。",
    ),
    "judge-room": Text("Give the judge enough tokens to reach its verdict.", "给评判模型足够的词元把判决写完。"),
    "average-templates": Text("Ask under several wordings and average.", "用几种措辞各问一次取平均。"),
    "deduplicate": Text(
        "Drop repeated pairs, and keep copies of one prompt on one side of the split.",
        "去掉重复的回答对；同一提示只放在划分的一侧。",
    ),
    "several-generators": Text(
        "Sample responses from several models or temperatures.", "用多个模型或多种温度采样回答。"
    ),
    "filter-noise": Text(
        "Look at the pairs that a preference model contradicts by the largest margin, and have them labeled again.",
        "找出偏好模型以最大分差反对的回答对，重新标注。",
    ),
    # machinery
    "check-trainable": Text(
        "Check that the weights change: compare them before and after one update; look at requires_grad,"
        " frozen adapters, and what the optimiser holds.",
        "确认权重在变：对比一次更新前后；检查 requires_grad、被冻结的适配器、优化器里到底有哪些参数。",
    ),
    "check-reward-signal": Text(
        "Print twenty responses with their scores: do scores differ within a prompt, and rightly so?",
        "打印二十个回答和它们的分数：同一提示内分数有差别吗？差得对吗？",
    ),
    "check-ceiling": Text("Check that the score is not at its ceiling already.", "检查分数是不是已经到顶。"),
    "check-sampling": Text(
        "Check the generation settings: no top-k, no top-p, no minimum length, no repetition penalty, no"
        " forbidden tokens.",
        "检查生成设置：不要 top-k、top-p、最小长度、重复惩罚、禁用词。",
    ),
    "check-padding": Text(
        "Check that padding and EOS are different tokens and that masks count each response token once.",
        "检查填充与 EOS 不是同一个词元，掩码对每个回答词元只计一次。",
    ),
    "check-reference-mode": Text(
        "Run policy and reference in the same precision, without dropout, with the right adapters.",
        "策略与参考模型用同样的精度、关闭 dropout、启用正确的适配器。",
    ),
    "check-temperature": Text(
        "Divide logits by the same temperature for sampling and for every log-probability.",
        "采样与所有对数概率用同一个温度除 logits。",
    ),
    "check-precision": Text(
        "Take log-probabilities from float32 logits on both sides, and compare the weights that the sampler holds.",
        "两侧都用 float32 的 logits 取对数概率，并核对采样端的权重。",
    ),
    "check-old-logprobs": Text(
        "Check that the ratio of the first minibatch is 1: old log-probabilities must come from the same"
        " weights, mask and temperature.",
        "检查第一个小批的概率比为 1：旧对数概率必须来自同样的权重、掩码和温度。",
    ),
    "recompute-old": Text(
        "Recompute old log-probabilities with the trainer instead of taking the sampler's.",
        "用训练端重新计算旧对数概率，不要直接用采样端的。",
    ),
    "clamp-ratio": Text("Clamp the log-ratio (to 20) before the exponential.", "取指数前先把对数比限制在 ±20 以内。"),
    "check-mask": Text(
        "Mask before arithmetic: 0 times NaN is NaN; and a mask that is all False leaves no gradient.",
        "先掩码再运算：0 乘 NaN 仍是 NaN；全为 False 的掩码没有梯度。",
    ),
    "check-versions": Text(
        "Upgrade the distributed engine: zero gradient norms have been its bug before (ms-swift issue 5890).",
        "升级分布式引擎：梯度范数为 0 曾是它的缺陷（ms-swift issue 5890）。",
    ),
    "average-checkpoints": Text(
        "Choose the checkpoint by an independent measure, or average the last few.",
        "按独立指标选检查点，或对最后几个取平均。",
    ),
    "check-sign": Text(
        "Check the sign: a KL penalty is subtracted from a reward and added to a loss.",
        "检查正负号：KL 惩罚从奖励里减去，在损失里则是加上。",
    ),
    "check-score-position": Text(
        "Check that the score lands on the last response token (EOS included) and that an early EOS is not rewarded.",
        "检查分数是否落在回答的最后一个词元上（含 EOS），过早的 EOS 是否得了奖励。",
    ),
    "check-eos": Text(
        "Check the EOS and stop tokens: the chat template's, the tokenizer's and the generation settings' must agree.",
        "检查 EOS 与停止词：对话模板、分词器、生成设置三者要一致。",
    ),
    "warm-start": Text(
        "Start from a policy that succeeds now and then (SFT), or give partial credit.",
        "从偶尔能成功的策略（SFT）开始，或给部分得分。",
    ),
    "match-difficulty": Text(
        "Choose prompts that the policy solves sometimes: neither never nor always.",
        "选择策略有时能做对的提示：不要全错，也不要全对。",
    ),
    "check-groups": Text(
        "Check that the group index puts the responses to one prompt together.",
        "检查分组编号是否把同一提示的回答放在一起。",
    ),
    "check-reference": Text(
        "Check that the reference is the model that training started from: chosen and rejected rewards are 0"
        " at step 0.",
        "确认参考模型就是训练的起点：第 0 步的两个奖励都应为 0。",
    ),
    "check-adapters": Text(
        "With adapters: the reference is the model with the SFT adapter merged, not the bare one.",
        "使用适配器时：参考模型应是合并了 SFT 适配器的模型，而不是裸模型。",
    ),
    "check-template": Text(
        "Use one chat template and one tokenizer for policy and reference.",
        "策略与参考模型用同一个对话模板和分词器。",
    ),
    "on-policy-pairs": Text(
        "Use pairs sampled from the policy itself: others are told apart without learning anything.",
        "用策略自己采样的回答对：别人的回答不用学什么就能分辨。",
    ),
    "check-split": Text(
        "Check that validation pairs are of the same kind, and formatted the same way, as the training pairs.",
        "检查验证用的回答对与训练用的是否同类、格式是否一致。",
    ),
    "check-parser": Text(
        "Read some responses of the benchmark first: a changed format looks like a lost ability.",
        "先看几条基准测试的回答：格式变了看起来就像能力丢了。",
    ),
    "average-weights": Text("Average the weights with the reference's.", "与参考模型做权重平均。"),
    "adapters": Text("Train adapters instead of all weights.", "改为只训练适配器。"),
    "decontaminate": Text(
        "Remove prompts that overlap with the benchmark (13-grams).", "去掉与基准重合的提示（13 元词组）。"
    ),
    "private-test": Text("Keep a test set that nobody has published.", "保留一份没有公开过的测试集。"),
    "rotate-test": Text(
        "Change the test set from time to time, by paraphrase or new numbers.", "不时更换测试集：改写题面或换数字。"
    ),
    "check-metric": Text(
        "Do not read this signal: it is computed wrongly. Find out where padding or a sentinel enters it.",
        "不要看这个信号：它算错了。查清填充或占位值从哪里混了进去。",
    ),
    "upgrade-trainer": Text(
        "Upgrade the trainer: some releases log this signal wrongly.", "升级训练框架：有些版本会记错这个信号。"
    ),
    "name-unit": Text(
        "Say what the key means with --map ours=theirs; then the check can be made.",
        "用 --map ours=theirs 说明这个键的含义，就能做这项检查。",
    ),
    "resume-run": Text(
        "The log ends in the middle of a record: the run was killed or is being written. Resume it, or wait.",
        "日志断在一条记录中间：运行被终止，或仍在写入。恢复运行，或等它写完。",
    ),
}
