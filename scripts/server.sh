# shellcheck shell=bash
# ./run server and ./run isql.

# shellcheck disable=SC2154 # BUILD and DIST are set by ./run
cmd_server() {
	local mode=Super port=0 root=$BUILD/server preload=$DIST/lib/libfbprof.so detach='' stop=''
	while (($#)); do
		case $1 in
		--mode | --port | --root) (($# > 1)) || usage_error "$1 needs a value" ;;&
		--mode)
			case ${2,,} in
			super) mode=Super ;;
			classic) mode=Classic ;;
			*) usage_error "--mode is Super or Classic, not '$2'" ;;
			esac
			shift
			;;
		--port)
			[[ $2 =~ ^[1-9][0-9]{0,4}$ && $2 -lt 65536 ]] || usage_error "--port is 1 to 65535, not '$2'"
			port=$2
			shift
			;;
		--root) root=$2 && shift ;;
		--no-preload) preload= ;;
		--detach) detach=1 ;;
		--stop) stop=1 ;;
		*) usage_error "server has no option '$1', see ./run help" ;;
		esac
		shift
	done

	if [[ $stop ]]; then
		fb_running "$root" || fail "no server runs in $(short "$root")"
		say "stopping the server in $(short "$root")"
		fb_stop "$root"
		return
	fi

	locked setup_all
	[[ -z $preload ]] || locked build_all

	if ((port)); then
		! fb_listening "$port" || fail "port $port is taken: choose another, or leave --port out"
	elif ! fb_listening 3050; then
		port=3050
	fi
	[[ $root != *[[:space:]]* ]] || fail "Firebird can't live in a path with blanks: choose another --root than '$root'"
	say "server root: $(short "$root") ($mode)"
	fb_make_root "$root" "$mode" "$port" || exit 1
	root=$(cd -- "$root" && pwd -P)
	port=$(<"$root/server.port")

	local environment=()
	if [[ $preload ]]; then
		FBPROF_DIR=${FBPROF_DIR:-$root/fbprof}
		[[ $FBPROF_DIR == /* ]] || FBPROF_DIR=$PWD/$FBPROF_DIR
		export FBPROF_DIR
		(umask 077 && mkdir -p "$FBPROF_DIR")
		# Only the server is preloaded: the variable must not reach this shell's own children.
		environment+=("LD_PRELOAD=$preload${LD_PRELOAD:+:$LD_PRELOAD}")
	fi
	# From here on a Ctrl-C must not leave a server behind.
	[[ $detach ]] || trap 'server_stopped "$root"' INT TERM HUP
	fb_start "$root" "${environment[@]}" || exit 1

	say "Firebird runs on 127.0.0.1:$port, pid $(<"$root/server.pid")"
	[[ -z $preload ]] || say "fbprof is preloaded; its logs will be in $(short "$FBPROF_DIR")"
	say "server's messages: $(short "$root")/firebird.log and server.log"
	say "connect: ./run isql -user sysdba -password ${FBPROF_PASSWORD:-masterkey} inet://127.0.0.1:$port/test"
	if [[ $detach ]]; then
		say "stop it: ./run server --stop$([[ $root == "$BUILD/server" ]] || printf -- ' --root %q' "$root")"
		return
	fi
	say "Ctrl-C stops it"
	wait "$(<"$root/server.pid")" || fail "the server ended by itself, see $(short "$root")/firebird.log"
}

server_stopped() {
	trap '' INT TERM HUP
	printf '\n'
	say "stopping the server"
	fb_stop "$1" || exit 1
	exit 0
}

# The shell becomes isql, with nothing printed before: its output may go into a pipe.
cmd_isql() {
	local runtime isql environment=()
	fb_check_runtime || exit 1
	runtime=$(fb_runtime)
	isql=$(fb_program isql-fb isql)
	if [[ ${FBPROF_PRELOAD-} == 1 ]]; then
		[[ -e $DIST/lib/libfbprof.so ]] || fail "build/dist/lib/libfbprof.so is missing: run ./run build"
		environment+=("LD_PRELOAD=$DIST/lib/libfbprof.so${LD_PRELOAD:+:$LD_PRELOAD}")
	fi
	exec env FIREBIRD="$runtime" LD_LIBRARY_PATH="$(fb_library_path "$runtime")" \
		"${environment[@]}" "$isql" "$@"
}
