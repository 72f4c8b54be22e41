# Completion for fbprof and fbprof-dump in bash.

_fbprof_words() {
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_fbprof_directories() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -d -- "$1")
}

_fbprof_logs() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(
		compgen -f -X '!*.fbprof' -- "$1"
		compgen -d -- "$1"
	)
}

# Options if the word begins like one, else logs.
_fbprof_options() {
	if [[ $2 == -* ]]; then
		_fbprof_words "$1 --all --help --version" "$2"
	else
		_fbprof_logs "$2"
	fi
}

_fbprof_dump() {
	case $2 in
	-o | --output)
		_fbprof_directories "$1"
		;;
	-t | --table)
		_fbprof_words 'sessions statements cursors record_sources requests psql_stats record_source_stats' "$1"
		;;
	*)
		_fbprof_options '--output --table --info' "$1"
		;;
	esac
}

_fbprof_report() {
	case $2 in
	-b | --by)
		_fbprof_words 'all line record-source statement' "$1"
		;;
	-o | --sort)
		_fbprof_words 'self total count' "$1"
		;;
	-s | --session | -n | --limit)
		;;
	*)
		_fbprof_options '--session --by --sort --limit' "$1"
		;;
	esac
}

_fbprof_pids() {
	mapfile -t COMPREPLY < <(compgen -W "$(pgrep -f -i firebird 2>/dev/null)" -- "$1")
}

_fbprof_record() {
	case $2 in
	-p | --pid)
		_fbprof_pids "$1"
		;;
	-o | --output | --layouts)
		_fbprof_directories "$1"
		;;
	--sql-text)
		_fbprof_words 'full hash off' "$1"
		;;
	-d | --duration | -i | --interval | --share | --plan-rate)
		;;
	*)
		_fbprof_words '--pid --duration --output --interval --share --plan-rate --sql-text --layouts --help --version' "$1"
		;;
	esac
}

_fbprof_top() {
	case $2 in
	-d | --delay)
		;;
	-p | --pid | --layouts | --sql-text | -i | --interval | --share | --plan-rate)
		_fbprof_record "$1" "$2"
		;;
	*)
		if [[ $1 == -* ]]; then
			_fbprof_words '--pid --delay --once --interval --share --plan-rate --sql-text --layouts --help --version' "$1"
		else
			_fbprof_logs "$1"
		fi
		;;
	esac
}

_fbprof_passive() {
	case $2 in
	-p | --pid)
		_fbprof_pids "$1"
		;;
	*)
		_fbprof_words 'on off status --pid --help --version' "$1"
		;;
	esac
}

_fbprof_timing() {
	case $2 in
	-c | --clock)
		_fbprof_words 'rdtsc lfence-rdtsc rdtscp cntvct isb-cntvct tick-clock tick-clock-ordered raw monotonic coarse cpu' "$1"
		;;
	-d | --duration)
		;;
	*)
		_fbprof_words '--duration --clock --help --version' "$1"
		;;
	esac
}

_fbprof_calibrate() {
	case $2 in
	-t | --timeout)
		;;
	*)
		if [[ $1 == -* && $2 != -c && $2 != --client ]]; then
			_fbprof_words '--costs --show --json --client --timeout --quiet --help --version' "$1"
		else
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$1")
		fi
		;;
	esac
}

_fbprof() {
	local commands='calibrate dump passive record report timing top'
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	# Bash takes "--option=value" for three words.
	if [[ $current == '=' ]]; then
		current=
	elif [[ $previous == '=' ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [[ ${COMP_WORDS[0]##*/} == fbprof-dump ]]; then
		_fbprof_dump "$current" "$previous"
	elif ((COMP_CWORD == 1)); then
		_fbprof_words "$commands help --help --version" "$current"
	elif [[ ${COMP_WORDS[1]} == help ]]; then
		((COMP_CWORD > 2)) || _fbprof_words "$commands" "$current"
	elif [[ " $commands " == *" ${COMP_WORDS[1]} "* ]]; then
		"_fbprof_${COMP_WORDS[1]}" "$current" "$previous"
	fi
}

complete -F _fbprof fbprof fbprof-dump
