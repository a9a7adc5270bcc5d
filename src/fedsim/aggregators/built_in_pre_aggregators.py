"""The built-in pre-aggregators, in the order of lists and pages."""

from fedsim.aggregators.nnm import nnm as nnm
from fedsim.aggregators.bucketing import bucketing as bucketing
from fedsim.aggregators.clipping import clipping as clipping
from fedsim.aggregators.clipping import arc as arc
from fedsim.aggregators.clipping import zeroing as zeroing
from fedsim.aggregators.compression import quantization as quantization, top_k as top_k
