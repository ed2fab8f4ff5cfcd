"""Reading the logs and judgments that people bring: the form is recognised from the content, never from the name.

`read` makes of a path what the doctor looks at. Broken files give what is left of them, and say what was skipped.
"""

from __future__ import annotations

from trimtab.doctor.importers.read import Material, log_of_rows, read

__all__ = ["Material", "log_of_rows", "read"]
