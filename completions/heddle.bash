# SPDX-License-Identifier: BSD-2-Clause
# Completion of heddle(1) for bash. After `heddle run OPTIONS` (or `compare`) it completes the program as the shell
# would by itself.

# The values of option $1 of command $2.
_heddle_values() {
    case $1 in
    --category) echo "all mpi-everywhere 2xdynamic dynamic shared-dynamic static mpi+threads" ;;
    --path) echo "verbs direct both" ;;
    --posting) echo "conservative batched both" ;;
    --kernels) echo "this both" ;;
    --kernel) echo "message-rate global-array stencil" ;;
    --figure) echo "2b 3 5 6 7 8a 8b 9 10 11" ;;
    --share) echo "context= pd= mr= cq= qp= buffer=" ;;
    --endpoints) echo "auto mpi-everywhere 2xdynamic dynamic shared-dynamic static mpi+threads" ;;
    --post) echo "auto verbs direct" ;;
    --softhca) echo "auto always never" ;;
    --mpi) echo "auto mpich openmpi intel" ;;
    --channel) echo "send ring both" ;;
    --way) echo "tupleq tupleq+copy rput rget auto" ;;
    --side) echo "sender receiver both" ;;
    --peer) echo "spin yield sleep" ;;
    --within-node) echo "auto mpi heddle" ;;
    --yield) echo "auto always" ;;
    --format) echo "text json csv" ;;
    --only)
        if [ "$2" = check-hardware ]; then
            echo "versions device port registers entries arm arm-repeated order scatter numbers" \
                "memory-events rates"
        else
            echo "endpoints reuse direct tupleq peers"
        fi
        ;;
    --device) ls /sys/class/infiniband 2>/dev/null ;;
    esac
}

_heddle_options() {
    local kernel="--category --path --depth --repetitions --device --patience --exchange --json --help"
    local reuse="--repetitions --time --device --json --help"
    case $1 in
    run)
        echo "--ranks --hosts --hostfile --ssh --no-check --endpoints --post --rndv --threads --stats --stats-file --reuse-report --explain --softhca --mpi --within-node --yield" \
            "--record --verbose --help"
        ;;
    compare) echo "--ranks --rounds --warmup --patience --null --format --json --help" ;;
    top) echo "--pid --interval --once --json --help" ;;
    info) echo "--json --help" ;;
    doctor)
        echo "--device --ranks --threads --hosts --hostfile --ssh --timeout --libfabric --json --help"
        ;;
    options) echo "--json --markdown --man --help" ;;
    calibrate) echo "--device --show --machine --json --help" ;;
    check-hardware) echo "--device --out --only --list --json --help" ;;
    reproduce) echo "--quick --full --only --out --hosts --no-page --list --runs --smb --npb --help" ;;
    report) echo "--markdown --only --out --help" ;;
    plan)
        echo "--threads --qps-per-thread --processes --budget-uars --depth --device --measure" \
            "--kernels --rates --kernel --at-least --machine --json --help"
        ;;
    bench) echo "--help" ;;
    predict)
        echo "--category --share --threads --kernel --processes --post-list --signal-every --depth" \
            "--bytes --no-inline --machine --record --bounds --errors --figures --other-papers --robustness --fit --json" \
            "--help"
        ;;
    message-rate)
        echo "--figure --threads --path --repetitions --seconds --device --json --category --share" \
            "--depth --post-list --signal-every --bytes --no-inline --no-blueflame --exchange --help"
        ;;
    global-array) echo "--matrix --tile --threads --posting $kernel" ;;
    stencil) echo "--processes --threads --grid --iterations $kernel" ;;
    reuse-pingpong) echo "--channel --bytes $reuse" ;;
    reuse-rotation) echo "--channel $reuse" ;;
    reuse-spectrum) echo "--channel --bytes --buffers $reuse" ;;
    reuse-spectrum-put | reuse-spectrum-get) echo "--bytes --buffers $reuse" ;;
    reuse-put | reuse-get) echo "--bytes $reuse" ;;
    reuse-never) echo "--runs --bytes $reuse" ;;
    reuse-bcast | reuse-scatter) echo "--channel --bytes --processes $reuse" ;;
    overlap) echo "--side --bytes --way --peer $reuse" ;;
    tuple-latency) echo "--bytes --way $reuse" ;;
    tuple-late) echo "--bytes --late --window --way $reuse" ;;
    tuple-many) echo "--bytes --tags --window --way $reuse" ;;
    tuple-wildcards) echo "--bytes --wildcards --window --way $reuse" ;;
    esac
}

# Completes the program of `heddle run` or `compare` and its arguments; fails while its options are not over.
_heddle_program() {
    local i=2
    while [ "$i" -lt "$COMP_CWORD" ]; do
        case ${COMP_WORDS[i]} in
        --) i=$((i + 1)) && break ;;
        --help | --stats | --reuse-report | --explain | --no-check | --verbose | -v | --null | --json) i=$((i + 1)) ;;
        -*) i=$((i + 2)) && [ "${COMP_WORDS[i - 1]}" = "=" ] && i=$((i + 1)) ;;
        *) break ;;
        esac
    done
    if [ "$i" -gt "$COMP_CWORD" ] || { [ "$i" -eq "$COMP_CWORD" ] && [[ $1 == -* ]]; }; then
        return 1
    fi
    if declare -F _command_offset >/dev/null; then
        _command_offset "$i"
    elif [ "$i" -eq "$COMP_CWORD" ]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$1")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$1")
    fi
}

_heddle() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "run compare top info doctor plan predict bench options calibrate check-hardware reproduce report --help --version" -- "$current")
        return
    fi
    local command=${COMP_WORDS[1]}
    if [ "$command" = bench ]; then
        if [ "$COMP_CWORD" -eq 2 ]; then
            mapfile -t COMPREPLY < <(compgen -W \
                "message-rate global-array stencil overlap reuse-pingpong reuse-rotation reuse-spectrum \
                reuse-spectrum-put reuse-spectrum-get reuse-put reuse-get reuse-bcast reuse-scatter reuse-never tuple-latency tuple-late tuple-many tuple-wildcards --help" -- "$current")
            return
        fi
        command=${COMP_WORDS[2]}
    fi
    if { [ "$command" = run ] || [ "$command" = compare ]; } && _heddle_program "$current"; then
        return
    fi
    # "=" is a word of its own for bash; --flag=value is completed as --flag value.
    if [ "$current" = "=" ]; then
        current=
    elif [ "$previous" = "=" ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $previous in
    --category | --path | --posting | --kernel | --kernels | --figure | --share | --device | --endpoints | --post | \
        --softhca | --mpi | --within-node | --yield | --channel | --way | --side | --peer | --only | --format)
        mapfile -t COMPREPLY < <(compgen -W "$(_heddle_values "$previous" "$command")" -- "$current")
        # the number follows at once; outside a completion, as in a test, bash knows no compopt
        [ "$previous" = --share ] && compopt -o nospace 2>/dev/null
        ;;
    --pid) mapfile -t COMPREPLY < <(compgen -W "$(ps -u "$(id -u)" -o pid= 2>/dev/null)" -- "$current") ;;
    --stats-file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    --exchange | --smb | --npb) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    --hosts | -hosts | -H)
        if [ "$command" = reproduce ]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
        else
            mapfile -t COMPREPLY < <(compgen -A hostname -- "$current")
        fi
        ;;
    --ssh) mapfile -t COMPREPLY < <(compgen -c -- "$current") ;;
    --out | --hostfile | -hostfile | -f | --libfabric | --machine | --record) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    # what takes a number, and the number behind --share cq=
    --ranks | -n | -np | --np | --rounds | --warmup | --threads | --qps-per-thread | --processes | --budget-uars | --depth | --repetitions | --runs | \
        --seconds | --patience | --post-list | --signal-every | --bytes | --matrix | --tile | \
        --grid | --iterations | --late | --tags | --wildcards | --interval | --timeout | --window | --time | --at-least | --fit | context | pd | mr | cq | qp | buffer) ;;
    *)
        mapfile -t COMPREPLY < <(compgen -W "$(_heddle_options "$command")" -- "$current")
        [ "$command" = report ] && [[ $current != -* ]] &&
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
        ;;
    esac
    return 0
}

complete -F _heddle heddle
