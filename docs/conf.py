"""Configuration of the documentation site: `make docs` builds it in strict mode."""

from __future__ import annotations

from importlib.metadata import version as installed_version

project = "FLORIST"
author = "The FLORIST developers"
release = version = installed_version("florist")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
root_doc = "index"
# Files of the study are included in a page.
exclude_patterns = ["_build", "decisions/study"]

# Headings can be linked to as on GitHub: page.md#heading.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# The theme comes with its own styles and scripts: the site loads nothing from elsewhere.
html_theme = "furo"
html_title = f"FLORIST {release}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "footer_icons": [],
    "source_repository": "",
}

# Links between pages are checked; names in type hints of the API need not have a page.
nitpick_ignore_regex = [("py:.*", ".*")]
