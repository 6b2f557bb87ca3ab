"""How Sphinx makes the site: `sphinx-build -c docs . build/site`, in the folder above this one."""

project = "HybrisFS"
copyright = "the HybrisFS authors"  # noqa: A001 - Sphinx's name for it
extensions = ["myst_parser"]
include_patterns = [
    "docs/**.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
# No pages are there, but tens of thousands of files, which Sphinx would look at for minutes.
exclude_patterns = [
    ".*",
    "backends",
    "benchmarks",
    "build",
    "cli",
    "dashboard",
    "gateway",
    "hybrisfs",
    "packaging",
    "serving",
    "sync",
    "tests",
    "tray",
]
root_doc = "docs/README"
html_theme = "furo"
html_extra_path = ["site/index.html"]  # leads to the first page
html_static_path = ["site/site.css"]
html_css_files = ["site.css"]
html_title = "HybrisFS"
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 3
# The pages are read without Sphinx, too: shells' prompts and other systems' names are no languages to it.
suppress_warnings = ["misc.highlighting_failure"]
