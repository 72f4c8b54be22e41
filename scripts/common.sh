# shellcheck shell=bash
# What all of ./run's commands share: messages, logged steps, one lock for setup and build.

# shellcheck disable=SC2154 # BUILD, LOGS and REPO are set by ./run
say() { printf '[run] %s\n' "$*"; }

fail() {
	printf '[run] failed: %s\n' "$*" >&2
	exit 1
}

usage_error() {
	printf 'run: %s\n' "$*" >&2
	exit 2
}

no_arguments() {
	local command=$1
	shift
	(($# == 0)) || usage_error "$command takes no arguments, but got '$1'"
}

# A path as a person in the repository would write it.
short() { printf '%s' "${1#"$REPO"/}"; }

# step LOG TEXT COMMAND...: says TEXT, runs COMMAND with its output in build/log/LOG.log, and stops with
# the end of that log if it fails. A shell function as COMMAND must chain by &&: errexit is off in it.
step() {
	local log=$LOGS/$1.log rc=0
	say "$2"
	shift 2
	mkdir -p "$LOGS"
	"$@" >"$log" 2>&1 </dev/null || rc=$?
	((rc == 0)) || {
		tail -n 30 "$log" | sed 's/^/      /' >&2
		fail "'$*' ended with status $rc, see $(short "$log")"
	}
}

# Runs a function under the tree's lock, in a subshell, so that two ./run in one tree take turns.
locked() {
	mkdir -p "$BUILD"
	(
		flock -n 9 || {
			say "waiting for another ./run in this tree"
			flock 9
		}
		"$@"
	) 9>"$BUILD/.lock"
}

sha256_of() { sha256sum -- "$1" | cut -d ' ' -f 1; }
