# shellcheck shell=bash
# ./run setup: Debian packages, the Firebird runtime and a Python venv. Every part first looks whether it is
# there already, so a second run neither downloads nor installs anything. Downloads are pinned, checked by
# SHA-256, and kept in .cache/; a file gets its name there only once it is whole and checked.

# shellcheck disable=SC2154 # REPO, BUILD, CACHE and VENV are set by ./run
FB_VERSION=5.0.4

# Firebird version, version of its package firebird-embedded, SHA-256 of the wheel. The first is what tests run with; the
# older ones, which have no profiler, are for passive mode.
FB_RUNTIMES=(
	"$FB_VERSION 5.0.4.4 4112cf5c25cea05d39d4f51c8ac54e0341d341b2099e8b2592a65e80a00463e4"
	"4.0.7 4.0.7.4 84f9102547e9a605ba15dfe3b5d2b7fed9edc8042ebddb68b8624a2cce0ef8a0"
	"3.0.14 3.0.14.4 c60514b834578f0fb035f57750e49fa5b9f73edabca02ff0e3852cc2ea4ae85c"
)
FB_DEB_VERSION=3.0.11.33637.ds4-2+deb12u1
FB_SERVER_SHA256=a57a02deb16b3e3524fa88376a2cd0e2f1cdccdb37af67e9885d3a47e7001365
FB_UTILS_SHA256=40145999492fb323d3cd57d97a3e01383afd6b1f5821f29c359f8a8bc90d8cad
FB_CORE_SHA256=5f76079477843350971dc7f1372a51d6964c58e7fbe2b93b6188225a7dda4a6e
FB_CLIENT_SHA256=595302b41767dd5e021ff9cab531e56a280949de6c49eac8f9400c408359e98e
FB_IB_UTIL_SHA256=6d080847441503daa27ecc1ac274cb0994aa4c67826e99ab0a822b063cfc9550
FB_COMMON_SHA256=69a378797307ccefd4fe5cfb2168787d3cee7bd2245e9867596e0fef5a05d7be

# libtommath1 and libedit2 are what the runtime and isql-fb link to, libncurses5 what Firebird 3's does; the engine
# loads ICU (libicu72) by itself, for time zones and UTF-8 collations.
DEBIAN_PACKAGES=(
	build-essential autoconf automake libtool pkg-config
	libglib2.0-dev libncurses-dev libunwind-dev check
	libtommath1 libedit2 libicu72 libncurses5
	python3 python3-venv unzip ca-certificates valgrind
)

setup_all() {
	[[ $(uname -m) == x86_64 ]] || fail "fbprof is built and tested on x86_64 only, this is $(uname -m)"
	mkdir -p "$BUILD" "$CACHE" "$LOGS"
	rm -rf "$CACHE"/.download.* "$BUILD"/firebird/.new.* # left by a run that was interrupted
	setup_debian_packages
	setup_venv
	local runtime
	for runtime in "${FB_RUNTIMES[@]}"; do
		# shellcheck disable=SC2086 # three words
		setup_runtime $runtime
	done
	setup_debian_runtime
	setup_python_packages
}

as_root() {
	if ((EUID == 0)); then
		"$@"
	else
		sudo "$@" || {
			echo "root is needed for this: run ./run setup as root, or with sudo installed" >&2
			return 1
		}
	fi
}

package_installed() {
	[[ $(dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | head -n 1) == installed ]]
}

setup_debian_packages() {
	local package missing=()
	for package in "${DEBIAN_PACKAGES[@]}"; do
		package_installed "$package" || missing+=("$package")
	done
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null || fail "no apt-get here: install by hand what corresponds to ${missing[*]}"
	apt_update
	step apt-install "installing Debian packages: ${missing[*]}" \
		as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# Updates the lists once a run. A foreign source that doesn't answer makes apt-get fail though Debian's own
# lists are fine, so what counts is whether the install that follows works.
apt_update() {
	[[ -z ${apt_updated-} ]] || return 0
	say "updating the lists of Debian packages"
	as_root apt-get update >"$LOGS/apt-update.log" 2>&1 </dev/null ||
		say "apt-get update complained, see $(short "$LOGS/apt-update.log"); going on"
	apt_updated=1
}

# Debian's own Python first: another one early in PATH may be of any version, or lack venv.
system_python() {
	local python
	for python in /usr/bin/python3 python3; do
		if command -v "$python" >/dev/null; then
			printf '%s' "$python"
			return
		fi
	done
	fail "python3 not found: install the Debian package python3"
}

setup_venv() {
	local python
	[[ ! -e $VENV/.complete || ! -x $VENV/bin/python ]] || return 0
	python=$(system_python)
	rm -rf "$VENV"
	step venv "making a Python venv in $(short "$VENV")" "$python" -m venv "$VENV"
	: >"$VENV/.complete"
}

pip_quiet() { "$VENV/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

# cached FILE SHA256 FETCH...: .cache/FILE, made by running FETCH in an empty directory if it isn't there yet.
cached() {
	local file=$1 sha256=$2 temporary got
	shift 2
	[[ ! -e $CACHE/$file ]] || return 0
	temporary=$(mktemp -d "$CACHE/.download.XXXXXX")
	step "download-${file%%_*}" "downloading $file" in_directory "$temporary" "$@"
	[[ -e $temporary/$file ]] || fail "$file was asked for, but got: $(ls "$temporary")"
	got=$(sha256_of "$temporary/$file")
	[[ $got == "$sha256" ]] || fail "$file has SHA-256 $got, not the pinned $sha256: not used"
	mv -T "$temporary/$file" "$CACHE/$file"
	rm -rf "$temporary"
}

in_directory() {
	local directory=$1
	shift
	(cd "$directory" && "$@")
}

# As root apt would rather drop its rights, which it can't in a private directory, and warn.
apt_download() { apt-get -o APT::Sandbox::User=root download "$1"; }

# cached_deb PACKAGE SHA256 [ARCHITECTURE]
cached_deb() {
	local package=$1 file=$1_${FB_DEB_VERSION}_${3-amd64}.deb
	[[ -e $CACHE/$file ]] || apt_update
	cached "$file" "$2" apt_download "$package=$FB_DEB_VERSION"
}

# setup_runtime VERSION PACKAGE-VERSION SHA256: the official binaries as PyPI packages them; isql and the server from
# Debian's 3.0, thin programs that run whatever engine their libfbclient brings.
setup_runtime() {
	local version=$1 package=$2 sha256=$3 new
	local runtime=$BUILD/firebird/$version wheel=firebird_embedded-$2-py3-none-manylinux_2_17_x86_64.whl
	local pins="$sha256 $FB_SERVER_SHA256 $FB_UTILS_SHA256"
	[[ $(cat "$runtime/.complete" 2>/dev/null) != "$pins" ]] || return 0
	cached "$wheel" "$sha256" pip_quiet download --no-deps --only-binary :all: -d . "firebird-embedded==$package"
	cached_deb firebird3.0-server "$FB_SERVER_SHA256"
	cached_deb firebird3.0-utils "$FB_UTILS_SHA256"
	mkdir -p "$BUILD/firebird"
	new=$(mktemp -d "$BUILD/firebird/.new.XXXXXX")
	step runtime "laying out the Firebird $version runtime in $(short "$runtime")" \
		lay_out_runtime "$new" "$wheel" "$sha256"
	printf '%s\n' "$pins" >"$new/runtime/.complete"
	rm -rf "$runtime"
	mv -T "$new/runtime" "$runtime"
	rm -rf "$new"
}

# Firebird 3 and 4 were linked to a libtommath of another name, which Debian's serves as well.
lay_out_runtime() {
	local new=$1 wheel=$2 sha256=$3 file tommath
	for file in "$wheel:$sha256" \
		"firebird3.0-server_${FB_DEB_VERSION}_amd64.deb:$FB_SERVER_SHA256" \
		"firebird3.0-utils_${FB_DEB_VERSION}_amd64.deb:$FB_UTILS_SHA256"; do
		[[ $(sha256_of "$CACHE/${file%:*}") == "${file##*:}" ]] || {
			echo "${file%:*} in .cache is damaged: remove it and run ./run setup again"
			return 1
		}
	done
	tommath=$(dpkg -L libtommath1 | grep '/libtommath\.so\.1$') || {
		echo "libtommath.so.1 not found: install the Debian package libtommath1"
		return 1
	}
	unzip -q "$CACHE/$wheel" 'firebird/embedded/runtime/*' -d "$new/wheel" &&
		dpkg -x "$CACHE/firebird3.0-server_${FB_DEB_VERSION}_amd64.deb" "$new/deb" &&
		dpkg -x "$CACHE/firebird3.0-utils_${FB_DEB_VERSION}_amd64.deb" "$new/deb" &&
		mv -T "$new/wheel/firebird/embedded/runtime" "$new/runtime" &&
		ln -s libfbclient.so.2 "$new/runtime/libfbclient.so" &&
		ln -s "$tommath" "$new/runtime/libtommath.so.0" &&
		mkdir "$new/runtime/bin" &&
		mv "$new/deb/usr/bin/isql-fb" "$new/deb/usr/sbin/firebird" "$new/runtime/bin/" &&
		chmod -R u+rwX,go+rX "$new/runtime" &&
		chmod 755 "$new/runtime/bin/isql-fb" "$new/runtime/bin/firebird"
}

# Debian's own Firebird 3.0, its server and engine, beside the others. Its paths are built in; FIREBIRD_BOOT_BUILD=1 in
# the environment has it take FIREBIRD's instead (tests/engine/firebird_env.py sets it).
setup_debian_runtime() {
	local runtime=$BUILD/firebird/debian-3.0 new
	local pins="$FB_SERVER_SHA256 $FB_UTILS_SHA256 $FB_CORE_SHA256 $FB_CLIENT_SHA256 $FB_IB_UTIL_SHA256 $FB_COMMON_SHA256"
	[[ $(cat "$runtime/.complete" 2>/dev/null) != "$pins" ]] || return 0
	cached_deb firebird3.0-server "$FB_SERVER_SHA256"
	cached_deb firebird3.0-utils "$FB_UTILS_SHA256"
	cached_deb firebird3.0-server-core "$FB_CORE_SHA256"
	cached_deb libfbclient2 "$FB_CLIENT_SHA256"
	cached_deb libib-util "$FB_IB_UTIL_SHA256"
	cached_deb firebird3.0-common "$FB_COMMON_SHA256" all
	new=$(mktemp -d "$BUILD/firebird/.new.XXXXXX")
	step runtime "laying out Debian's Firebird 3.0 in $(short "$runtime")" lay_out_debian_runtime "$new"
	printf '%s\n' "$pins" >"$new/runtime/.complete"
	rm -rf "$runtime"
	mv -T "$new/runtime" "$runtime"
	rm -rf "$new"
}

lay_out_debian_runtime() {
	local new=$1 package libraries=$1/deb/usr/lib/x86_64-linux-gnu
	for package in firebird3.0-server firebird3.0-utils firebird3.0-server-core firebird3.0-common libfbclient2 libib-util; do
		dpkg -x "$CACHE/${package}_${FB_DEB_VERSION}"_*.deb "$new/deb" || return 1
	done
	mkdir -p "$new/runtime/bin" &&
		mv "$new/deb/usr/bin/isql-fb" "$new/deb/usr/sbin/firebird" "$new/runtime/bin/" &&
		mv "$libraries/firebird/3.0/plugins" "$libraries/firebird/3.0/firebird.msg" "$new/runtime/" &&
		mkdir "$new/runtime/intl" &&
		mv "$libraries/firebird/3.0/intl/libfbintl.so" "$new/deb/etc/firebird/3.0/fbintl.conf" "$new/runtime/intl/" &&
		mv "$new/deb/etc/firebird/3.0/plugins.conf" "$new/runtime/" &&
		mv "$libraries"/libfbclient.so.3.0.* "$new/runtime/libfbclient.so.2" &&
		ln -s libfbclient.so.2 "$new/runtime/libfbclient.so" &&
		mv "$libraries/libib_util.so" "$new/runtime/" &&
		: >"$new/runtime/firebird.conf" &&
		chmod -R u+rwX,go+rX "$new/runtime" &&
		chmod 755 "$new/runtime/bin/isql-fb" "$new/runtime/bin/firebird"
}

# The venv's packages, by exact version and hash. Their wheels stay in .cache/, so that a removed build/ costs
# no download.
setup_python_packages() {
	local requirements=$REPO/tests/requirements.txt wheels=$CACHE/wheels sum temporary
	sum=$(sha256_of "$requirements")
	[[ $(cat "$VENV/.packages" 2>/dev/null) != "$sum" ]] || return 0
	if [[ $(cat "$wheels/.complete" 2>/dev/null) != "$sum" ]]; then
		temporary=$(mktemp -d "$CACHE/.download.XXXXXX")
		step download-wheels "downloading the Python packages of tests/requirements.txt" \
			pip_quiet download --only-binary :all: --require-hashes -r "$requirements" -d "$temporary"
		printf '%s\n' "$sum" >"$temporary/.complete"
		chmod 755 "$temporary"
		rm -rf "$wheels"
		mv -T "$temporary" "$wheels"
	fi
	step pip-install "installing the Python packages of tests/requirements.txt" \
		pip_quiet install --no-index --find-links "$wheels" --require-hashes -r "$requirements"
	printf '%s\n' "$sum" >"$VENV/.packages"
}
