# shellcheck shell=bash
# ./run check: every test there is. A failed build stops it; failed tests don't, so that one run shows them all.
# Its last line is the sum: "N passed, N failed".

# shellcheck disable=SC2154 # REPO, BUILD, OBJ, DIST and VENV are set by ./run
passed=0
failed=0

cmd_check() {
	no_arguments check "$@"
	locked setup_all
	locked build_all
	unit_tests "$OBJ"
	locked build_configure "$BUILD/asan" --enable-werror --enable-asan
	unit_tests "$BUILD/asan"
	locked build_configure "$BUILD/tsan" --enable-werror --enable-tsan
	unit_tests "$BUILD/tsan"
	engine_tests
	((passed)) || say "no test ran"
	printf '%d passed, %d failed\n' "$passed" "$failed"
	((passed && !failed))
}

# What a test against the real engine finds in its environment.
test_environment() {
	FBPROF_FIREBIRD=$(fb_runtime)
	export FBPROF_FIREBIRD
	export FBPROF_DIST=$DIST FBPROF_OBJ=$OBJ FBPROF_TEST_TMP=$BUILD/test-tmp
	mkdir -p "$FBPROF_TEST_TMP"
}

count() {
	say "$1: $2 passed, $3 failed${4:+, $4 skipped}"
	((passed += $2, failed += $3)) || true
}

# unit_tests DIR: builds and runs the Check programs of a build directory.
unit_tests() {
	local directory=$1 name log rc=0 good bad
	name=$(basename "$directory")
	log=$LOGS/unit-tests-$name.log
	step "make-tests-$name" "building the unit tests in $(short "$directory")" \
		make --no-print-directory -C "$directory" -j "$(nproc)" check TESTS=
	say "running the unit tests in $(short "$directory")"
	find "$directory/tests" \( -name '*.trs' -o -name '*.log' \) -delete
	without_random_layout timeout -k 10 600 make --no-print-directory -C "$directory" -j "$(nproc)" check >"$log" 2>&1 </dev/null || rc=$?
	read -r good bad < <(count_unit_tests "$directory")
	((good + bad)) || fail "no unit test ran in $(short "$directory"), see $(short "$log")"
	((rc == 0 || bad)) || {
		tail -n 20 "$log" >&2
		fail "make check in $(short "$directory") ended with status $rc, see $(short "$log")"
	}
	count "unit tests, $name" "$good" "$bad"
}

# ThreadSanitizer of gcc 12 can't live with the wider address randomization of newer kernels.
without_random_layout() {
	if setarch -R true 2>/dev/null; then
		setarch -R "$@"
	else
		"$@"
	fi
}

# Sums up Check's own lines ("100%: Checks: 12, Failures: 0, Errors: 0"), and shows the log of a program that failed.
# A program without such a line, for it crashed or is no Check program, counts as one test.
count_unit_tests() {
	local result outcome log good=0 bad=0 line ours checks
	while IFS= read -r result; do
		log=${result%.trs}.log
		outcome=$(sed -n 's/^:global-test-result: //p' "$result")
		ours=0
		checks=0
		while IFS= read -r line; do
			[[ $line =~ ^[0-9]+%:\ Checks:\ ([0-9]+),\ Failures:\ ([0-9]+),\ Errors:\ ([0-9]+)$ ]] || continue
			((checks += BASH_REMATCH[1], ours += BASH_REMATCH[2] + BASH_REMATCH[3])) || true
		done <"$log"
		case $outcome in
		PASS) ((checks)) || checks=1 ;;
		SKIP) ;;
		*) ((ours)) || ((checks += 1, ours = 1)) ;;
		esac
		if ((ours)); then
			printf '[run] %s: %s\n' "$(short "$log")" "$outcome" >&2
			tail -n 60 "$log" | sed 's/^/      /' >&2
		fi
		((good += checks - ours, bad += ours)) || true
	done < <(find "$1/tests" -name '*.trs' | sort)
	printf '%d %d\n' "$good" "$bad"
}

engine_tests() {
	local rc=0 report=$LOGS/engine-tests.xml good bad skipped
	test_environment
	[[ -d $REPO/tests/engine ]] || fail "tests/engine is missing from this tree"
	say "running the tests against a real engine: tests/engine"
	rm -f "$report"
	PYTHONDONTWRITEBYTECODE=1 timeout -k 10 1200 "$VENV/bin/python" -m pytest -p no:cacheprovider -q \
		--junitxml="$report" "$REPO/tests/engine" >"$LOGS/engine-tests.log" 2>&1 </dev/null || rc=$?
	# pytest: 0 all passed, 1 some failed; anything else means that they didn't all run.
	((rc == 0)) || tail -n 60 "$LOGS/engine-tests.log" | sed 's/^/      /' >&2
	((rc <= 1)) || say "pytest ended with status $rc ($( ((rc == 124)) && echo "20 minutes are over" || echo "5 means that it found no test"))"
	read -r good bad skipped < <("$VENV/bin/python" "$REPO/scripts/junit_totals.py" "$report")
	((rc == 0 || bad)) || bad=1
	count "engine tests" "$good" "$bad" "$skipped"
}
