"""The notebook front end: `ra.explore()`.

Each tab is a module with a model (what is shown, as plain data) and a view (widgets that show it).  `work` runs what
takes long in a thread of its own; `pictures` draws with matplotlib; `app` puts the tabs together.
"""
from importlib.util import find_spec

from redfuser_algebra.language.errors import OperatorError

for _package in ("ipywidgets", "matplotlib"):
    if find_spec(_package) is None:
        raise OperatorError("opening the explorer", f"{_package} is not installed", "run `pip install 'redfuser-algebra[lab]'`")
