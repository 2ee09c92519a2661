#!/usr/bin/env bash
# The documentation site, from a fresh clone: docs/_build/html/index.html. A warning is an error.
#   bash docs/build.sh          installs pdnn and the site's tools into .venv, and builds the site anew
#   bash docs/build.sh --here   with the Python on the path, which has both (`pip install '.[docs]'`)
# Links to other sites are not followed, because this works without a network:
#   sphinx-build -b linkcheck -c docs . docs/_build/links
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh

case ${1-} in
  --here) ;;
  '')
    enter_venv
    installed || install_pdnn .
    python -m pip install --quiet 'pdnn[docs]' || die "the site's tools could not be installed; the reason is above"
    ;;
  *) die "docs/build.sh: unknown argument $1, expected --here" ;;
esac
rm -rf docs/api docs/_build
python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet --jobs auto -c docs . docs/_build/html
echo "The site is docs/_build/html/index.html ($SECONDS s)"
