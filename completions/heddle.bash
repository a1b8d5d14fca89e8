# SPDX-License-Identifier: BSD-2-Clause
# Completion of heddle(1) for bash.

_heddle_values() {
    case $1 in
    --category) echo "all mpi-everywhere 2xdynamic dynamic shared-dynamic static mpi+threads" ;;
    --path) echo "verbs direct both" ;;
    --kernels) echo "this both" ;;
    --figure) echo "2b 3 5 6 7 8 9 10 11" ;;
    --share) echo "context= pd= mr= cq= qp= buffer=" ;;
    --device) ls /sys/class/infiniband 2>/dev/null ;;
    esac
}

_heddle_options() {
    local kernel="--category --path --depth --repetitions --device --patience --exchange --json --help"
    case $1 in
    info) echo "--json --help" ;;
    plan)
        echo "--threads --qps-per-thread --processes --budget-uars --depth --device --measure" \
            "--kernels --json --help"
        ;;
    bench) echo "--help" ;;
    message-rate)
        echo "--figure --threads --path --repetitions --seconds --device --json --category --share" \
            "--depth --post-list --signal-every --bytes --no-inline --no-blueflame --help"
        ;;
    global-array) echo "--matrix --tile --threads $kernel" ;;
    stencil) echo "--processes --threads --grid --iterations $kernel" ;;
    esac
}

_heddle() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "info plan bench --help --version" -- "$current")
        return
    fi
    local command=${COMP_WORDS[1]}
    if [ "$command" = bench ]; then
        if [ "$COMP_CWORD" -eq 2 ]; then
            mapfile -t COMPREPLY < <(compgen -W "message-rate global-array stencil --help" -- "$current")
            return
        fi
        command=${COMP_WORDS[2]}
    fi
    # "=" is a word of its own for bash; --flag=value is completed as --flag value.
    if [ "$current" = "=" ]; then
        current=
    elif [ "$previous" = "=" ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $previous in
    --category | --path | --kernels | --figure | --share | --device)
        mapfile -t COMPREPLY < <(compgen -W "$(_heddle_values "$previous")" -- "$current")
        # the number follows at once; outside a completion, as in a test, bash knows no compopt
        [ "$previous" = --share ] && compopt -o nospace 2>/dev/null
        ;;
    --exchange) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    # what takes a number, and the number behind --share cq=
    --threads | --qps-per-thread | --processes | --budget-uars | --depth | --repetitions | \
        --seconds | --patience | --post-list | --signal-every | --bytes | --matrix | --tile | \
        --grid | --iterations | context | pd | mr | cq | qp | buffer) ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$(_heddle_options "$command")" -- "$current") ;;
    esac
    return 0
}

complete -F _heddle heddle
