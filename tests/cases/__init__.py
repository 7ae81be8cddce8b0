"""Public reports of slow or wrong CUDA graphs, each as a recording and what must be said of it.

One file per report, numbered as in the collection they were taken from, so that numbers are
missing. Figures in the stories are those of the report; where it gives none that a recording needs
(how long one kernel takes, say), one is made up and said to be.
"""
