"""What the words of a report mean, in a sentence each."""

from gaptrace.render.words import CAUSES

#: Words that mean the same wherever they stand.
TERMS = {
    "span": "Length of the window: from the first device work to the last, or what was asked for, "
    "as far as it was recorded.",
    "busy": "Time in which any op of any stream, context or process ran on the device.",
    "idle": "Time in which no op of any stream, context or process ran on the device. Every "
    "nanosecond of it has exactly one cause.",
    "busy fraction": "Share of the span in which the device was busy. It does not say how much of "
    "the device was in use.",
    "gap": "A stretch of idle time of a device, between two ops, however short.",
    "gaps": "Stretches of idle time of a device, each between two ops, however short.",
    "ops": "Executions on the device: a kernel, a copy, a set, or a whole graph each.",
    "launch call": "The host's call that submits work. Its duration is not the latency that the "
    "device sees.",
    "exposed latency": "From the begin of the launch call to the start of the op, where the device "
    "was idle as the call began.",
    "lead": "From the end of the launch call to the start of the op: how far ahead the host was. "
    "Negative when the op started before the call returned.",
    "queued gap": "Gap before a graph execution whose launch had returned before the previous "
    "execution ended: made by the device alone.",
    "starved gap": "Gap before a graph execution that was launched too late: made by the host.",
    "CUDA nodes": "Nodes of a CUDA graph. Nodes of ggml or operators of a framework are others.",
    "chunk": "A contiguous interval of an order of a graph's nodes, instantiated as a graph of its "
    "own.",
    "granularity": "Whether a recording holds a graph execution as one op (graph) or each of its "
    "nodes (node).",
    "regime": "Whether graphs are built once (replay), updated (update) or built anew "
    "(instantiate) for each launch.",
    "warm-up": "Leading steps that are far longer than those of the later half.",
    "median": "Half of the values are not larger.",
    "p90": "Nine in ten values are not larger.",
    "p99": "99 in 100 values are not larger.",
    **{cause: f"Cause of idle time: {meaning}." for cause, meaning in CAUSES.items()},
}

#: Words that mean this only at the head of a column.
COLUMNS = {
    "cause": "Why the device stood idle, by what the thread that launched the next op was doing.",
    "of idle": "Share of the idle time.",
    "of span": "Share of the span.",
    "mostly": "What holds most: the API call, the phase of a build, or what was waited behind.",
    "at": "Start, since the session began.",
    "after": "The op that ran before the gap.",
    "before": "The op that ended the gap.",
    "in range": "Path of the innermost NVTX range open as the next op was launched.",
    "range": "Path of an NVTX range: a window of time on the host. Busy and idle time are those of "
    "the device inside it.",
    "count": "How many instances the range has.",
    "launches": "Launch calls inside with device work.",
    "graphs": "Graph launches: inside the range, or of one step.",
    "idle because of": "The largest causes, each with its share of the idle time.",
    "instance": "Number of the range among those of its path, from 0 on.",
    "device": "Number of the GPU.",
    "unit": "What repeats: path of an NVTX range, graphs, or kernels.",
    "steps": "How often it repeats.",
    "first": "Span of the first step.",
    "outliers": "Steady steps that are far longer than the others: modified z-score above 3.5, and "
    "a tenth above the median.",
    "nodes": TERMS["CUDA nodes"],
    "execs": "Instantiated graphs of that size.",
    "executions": "Replays on the device.",
    "duration": "From the start of a graph execution to its end.",
    "exposed": "Exposed latency: from the begin of the launch call to the start of the op, where "
    "the device was idle as the call began.",
    "how many": "How many such gaps.",
    "a step without a recorder": "Ways to launch the step of the recommendation.",
    "predicted": "From the begin of the first launch, or from when the device is free if that is "
    "later, until the host knows that the step is done.",
    "loss if chosen": "How much longer than the advised way, or, where none is advised, than the "
    "fastest of these.",
    "the advice changes if": "Figures that the advice rests on; it holds while none is further off "
    "than this.",
    "taken as": "What the figure was taken to be.",
    "is smaller by": "The factor at which another way would be better by more than 0.5 %.",
    "or larger by": "The factor at which another way would be better by more than 0.5 %.",
}

#: Heads of columns of a comparison.
COMPARED = {
    "before": "In the trace before the change.",
    "after": "In the trace after the change.",
    "change": "After less before.",
    "of before": "The change as a share of what was before.",
    "range": COLUMNS["range"],
    "device": COLUMNS["device"],
    "count": COLUMNS["count"],
    "idle before": "Idle time of the device inside it, in the trace before the change.",
    "idle after": "Idle time of the device inside it, in the trace after the change.",
}
