# shellcheck shell=bash
# ./run build: autoreconf and configure when they are due, then make and make install, in build/.

# shellcheck disable=SC2154 # REPO, BUILD, OBJ and DIST are set by ./run
build_all() {
	build_configure "$OBJ" --enable-werror
	step make "building in $(short "$OBJ")" make --no-print-directory -C "$OBJ" -j "$(nproc)"
	step make-install "installing into $(short "$DIST")" make --no-print-directory -C "$OBJ" install
	say "built: $(short "$DIST")/lib/libfbprof.so, $(short "$DIST")/bin/fbprof, $(short "$DIST")/bin/fbprof-dump"
}

# build_configure DIR SWITCH...: DIR becomes a configured build directory with these switches. Later changes of
# configure.ac and Makefile.am are noticed by make itself.
build_configure() {
	local directory=$1 wanted name
	name=$(basename "$directory")
	shift
	if [[ ! -x $REPO/configure || ! -e $REPO/Makefile.in || $REPO/configure.ac -nt $REPO/configure ]]; then
		step autoreconf "generating configure" autoreconf -fi "$REPO"
	fi
	wanted="$REPO $* CC=${CC-} CFLAGS=${CFLAGS-} LDFLAGS=${LDFLAGS-}"
	if [[ ! -e $directory/Makefile || $(cat "$directory/.configured" 2>/dev/null) != "$wanted" ]]; then
		# Objects of other switches would be taken for new ones.
		rm -rf "$directory"
		mkdir -p "$directory"
		step "configure-$name" "configuring $(short "$directory") ($*)" in_directory "$directory" \
			"$REPO/configure" --prefix="$DIST" --libdir="$DIST/lib" "$@"
		printf '%s\n' "$wanted" >"$directory/.configured"
	fi
}
