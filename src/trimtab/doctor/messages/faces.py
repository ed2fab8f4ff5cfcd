"""What the reports say around the findings: the verdict, headings, what could not be told, what was read."""

from __future__ import annotations

from trimtab.doctor.messages import Text

__all__ = ["MESSAGES"]

MESSAGES: dict[str, Text] = {
    # the verdict
    "face.sick": Text("Sick: {finding} since step {step}", "异常：{finding}，始于第 {step} 步"),
    "face.sick-without-step": Text("Sick: {finding}", "异常：{finding}"),
    "face.one-consequence": Text("1 consequence", "1 项后果"),
    "face.consequences": Text("{n} consequences", "{n} 项后果"),
    "face.one-other": Text("1 other finding", "另有 1 项发现"),
    "face.others": Text("{n} other findings", "另有 {n} 项发现"),
    "face.healthy": Text(
        "Healthy: no check raised an alarm (made: {made}, not possible: {unmade})",
        "健康：没有检查报警（已做 {made} 项，无法进行 {unmade} 项）",
    ),
    "face.inconclusive": Text(
        "Inconclusive: too little could be read to say healthy or sick (checks made: {made}, not possible: {unmade})",
        "无法判断：可读内容太少，不能断定健康或异常（已做 {made} 项检查，无法进行 {unmade} 项）",
    ),
    "face.one-noted": Text("1 thing noted", "1 项提示"),
    "face.noted": Text("{n} things noted", "{n} 项提示"),
    "face.probed": Text("the probe: {what}", "探测结果：{what}"),
    # severities and statuses
    "face.critical": Text("critical", "严重"),
    "face.warning": Text("warning", "警告"),
    "face.info": Text("note", "提示"),
    "face.status-sick": Text("sick", "异常"),
    "face.status-healthy": Text("healthy", "健康"),
    "face.status-inconclusive": Text("inconclusive", "无法判断"),
    # one finding
    "face.since": Text("since step {step}", "始于第 {step} 步"),
    "face.root": Text("root cause", "根本原因"),
    "face.where": Text("in {where}", "见 {where}"),
    "face.first": Text("Try first", "先试"),
    "face.then": Text("Then", "再试"),
    "face.if-it-stays": Text("Once its cause is mended, if it stays:", "原因消除后若仍存在："),
    "face.source": Text("Threshold from: {source}", "阈值出处：{source}"),
    "face.more": Text("More: trimtab explain {finding}", "详情：trimtab explain {finding}"),
    # the sections after the findings
    "face.story": Text("What is wrong", "问题所在"),
    "face.notes": Text("Noted, no reason for alarm", "仅作提示，无需报警"),
    "face.gaps": Text("What could not be told", "无法判断的项目"),
    "face.gaps-lead": Text(
        "Not faults: checks that this log does not allow.", "这些不是故障，而是此日志无法支持的检查。"
    ),
    "face.missing": Text("needs {keys}", "需要 {keys}"),
    "face.unit-unknown": Text(
        "the unit of {keys} cannot be told (name it: --map OURS=THEIRS)",
        "无法确定 {keys} 的单位（可用 --map 规范名=键名 指明）",
    ),
    "face.too-short": Text("more steps are needed ({keys})", "步数不足（{keys}）"),
    "face.too-short-alone": Text("more steps are needed", "步数不足"),
    "face.underpowered": Text("too few samples to show it ({keys})", "样本太少，显示不出来（{keys}）"),
    "face.underpowered-alone": Text("too few samples to show it", "样本太少，显示不出来"),
    "face.missing-alone": Text("nothing in what was read speaks for or against it", "所读内容与此无关"),
    "face.checked": Text("Looked for and not found", "已检查，未发现"),
    "face.read": Text("What was read", "读取的内容"),
    "face.one-log": Text(
        "{format}; rows: {rows}, steps {first} to {last}, signals: {series}",
        "{format}，{rows} 行，第 {first} 至 {last} 步，{series} 个信号",
    ),
    "face.log-without-steps": Text("{format}; rows: {rows}, signals: {series}", "{format}，{rows} 行，{series} 个信号"),
    "face.of-planned": Text("of {planned} planned steps", "计划共 {planned} 步"),
    "face.cut-off": Text("the file ends in the middle of a record", "文件在一条记录中间结束"),
    "face.algorithm": Text("algorithm {algorithm}, keys as in {framework}", "算法 {algorithm}，键名同 {framework}"),
    "face.skipped": Text("Skipped", "已跳过"),
    "face.skipped-at": Text("{n}: {reason} (first: line {line})", "{n} 处：{reason}（首见于第 {line} 行）"),
    "face.skipped-somewhere": Text("{n}: {reason}", "{n} 处：{reason}"),
    "face.unmapped": Text("Keys that nothing is known of", "未识别的键"),
    "face.unmapped-more": Text("and {n} more", "以及另外 {n} 个"),
    "face.unmapped-how": Text(
        "if one of them is a signal that is missing above: --map OURS=THEIRS",
        "若其中有上面缺少的信号：--map 规范名=键名",
    ),
    # one line, for the end of `trimtab run`, alarms and the report's card
    "face.alarm": Text(
        "{severity}: {finding} since step {step}: {cause}", "{severity}：{finding}，始于第 {step} 步：{cause}"
    ),
    "face.alarm-without-step": Text("{severity}: {finding}: {cause}", "{severity}：{finding}：{cause}"),
    # the page
    "face.page-title": Text("{status}: {name} (Trimtab doctor)", "{status}：{name}（Trimtab 诊断）"),
    "face.page-by": Text("Trimtab doctor {version}", "Trimtab 诊断 {version}"),
    "face.chart": Text(
        "{signal} by step, from {low} to {high}; last value {last}", "{signal} 随步数变化，{low} 至 {high}；末值 {last}"
    ),
    "face.chart-onset": Text(
        "{signal} by step, from {low} to {high}; last value {last}; onset at step {step}",
        "{signal} 随步数变化，{low} 至 {high}；末值 {last}；始于第 {step} 步",
    ),
    # trimtab explain
    "face.signals": Text("Signals", "信号"),
    "face.confusers": Text("What else could look like this", "易混淆的情形"),
    "face.fixes": Text("What to do, first thing first", "处理方法（按先后）"),
}
