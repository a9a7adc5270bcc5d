"""The built-in rules, in the order of lists and pages."""

from fedsim.aggregators.fedavg import fedavg as fedavg
from fedsim.aggregators.geometric_median import rfa as rfa
from fedsim.aggregators.krum import multi_krum as multi_krum
from fedsim.aggregators.cfl import cfl as cfl
from fedsim.aggregators.arfl import arfl as arfl
from fedsim.aggregators.coordinatewise import median as median
from fedsim.aggregators.coordinatewise import trimmed_mean as trimmed_mean
from fedsim.aggregators.coordinatewise import meamed as meamed
from fedsim.aggregators.krum import krum as krum
from fedsim.aggregators.bulyan import bulyan as bulyan
from fedsim.aggregators.centered_clipping import centered_clipping as centered_clipping
from fedsim.aggregators.norm_clipping import norm_clipping as norm_clipping
from fedsim.aggregators.dnc import dnc as dnc
from fedsim.aggregators.fltrust import fltrust as fltrust
from fedsim.aggregators.zeno import zeno as zeno
from fedsim.aggregators.subsets import mda as mda
from fedsim.aggregators.subsets import smea as smea
from fedsim.aggregators.caf import caf as caf
from fedsim.aggregators.geometric_median import autogm as autogm
from fedsim.aggregators.signguard import signguard as signguard
from fedsim.aggregators.foolsgold import foolsgold as foolsgold
from fedsim.aggregators.flame import flame as flame
from fedsim.aggregators.faba import faba as faba
from fedsim.aggregators.monna import monna as monna
from fedsim.aggregators.adaptive_clipping import adaptive_clipping as adaptive_clipping
from fedsim.aggregators.lfighter import lfighter as lfighter
