"""Explanations: how long responses get, and whether they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.messages import Text
from trimtab.doctor.messages.explain_words import page

__all__ = ["LENGTHS"]

LENGTHS: Final[Mapping[str, Text]] = {
    **page(
        "length-explosion",
        ("Responses grow without end", "长度失控"),
        (
            "Responses become much longer, often up to the limit. Whether it is a fault depends on an independent"
            " measure.",
            "回答变得长得多，常常顶到上限。是不是故障，要看独立指标。",
        ),
        [
            (
                "Length above one and a half of its start, without an independent measure that rises with it.",
                "长度超过开始时的一倍半，且没有随之上升的独立指标。",
            )
        ],
        [
            ("Reasoning that is learned.", "学会了推理。"),
            ("A length that is counted with the prompt.", "把提示也算进了长度。"),
        ],
    ),
    **page(
        "length-collapse",
        ("Responses shrink to nothing", "长度塌缩"),
        (
            "Responses become ever shorter, down to the EOS token alone: ending early is cheaper than being judged.",
            "回答越来越短，最后只剩 EOS：早点结束比被打分更划算。",
        ),
        [("Length under half of its start.", "长度不到开始时的一半。")],
        [
            (
                "Brevity that was asked for, with a score and an independent measure that rise.",
                "本来就要求简短，且分数与独立指标上升。",
            )
        ],
    ),
    **page(
        "truncated-responses",
        ("Responses are cut off", "回答被截断"),
        (
            "Many responses end at the limit and not with EOS. Their score judges a fragment, and a correct answer that"
            " comes late is never seen.",
            "许多回答在上限处结束，而不是以 EOS 结束。打分看到的是残篇，晚出现的正确答案永远看不到。",
        ),
        [("More than 10 % cut off, critical above 50 %.", "截断超过 10 %，超过 50 % 为严重。")],
        [
            ("Models that think at length: 60 % may be lived with.", "长思考模型：60 % 也可能可以接受。"),
            ("A fraction computed against the padded width.", "按填充后的宽度算出的比例。"),
        ],
    ),
    **page(
        "missing-eos",
        ("Responses never end", "没有 EOS"),
        (
            "No or hardly any response ends with an EOS token: the policy never learned to stop, or the trainer"
            " does not"
            " recognise its stop token.",
            "几乎没有回答以 EOS 结束：策略没有学会停止，或训练器不认识它的停止词。",
        ),
        [
            (
                "An EOS in fewer than half of the responses; none at all is critical.",
                "含 EOS 的回答不到一半；一个都没有为严重。",
            )
        ],
        [
            ("A count of one process only.", "只统计了一个进程。"),
            ("Padding and EOS that are the same token.", "填充与 EOS 是同一个词元。"),
        ],
    ),
}
"""By `<finding-id>.<part>`."""
