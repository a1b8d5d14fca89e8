# SPDX-License-Identifier: BSD-2-Clause
# Completion of softhca(1) for bash. After `softhca run OPTIONS` it completes the program as the shell
# would by itself.

_softhca_values() {
    case $1 in
    --uar) echo "dynamic static" ;;
    --engine) echo "hybrid inline thread dedicated" ;;
    --memory) echo "auto cma" ;;
    --memlock) echo "ignore enforce" ;;
    --port) echo "infiniband roce" ;;
    --device) echo "kind strict" ;;
    --lost-peer) echo "silent flush" ;;
    --log) echo "error warn info debug trace" ;;
    --fabric) softhca list --names 2>/dev/null ;;
    esac
}

_softhca_options() {
    case $1 in
    run) echo "--uar --engine --memory --memlock --lost-peer --port --address --devices --ports --numa --device --fabric --directory --log --log-file --record --record-limit --help" ;;
    stat) echo "--fabric --json --help" ;;
    top) echo "--fabric --interval --once --json --help" ;;
    list) echo "--json --names --help" ;;
    clean) echo "--fabric --all --dry-run --force --help" ;;
    port) echo "--fabric --device --port --json --help" ;;
    env | traits) echo "--json --help" ;;
    esac
}

_softhca() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "run stat top list clean port env traits --help --version" -- "$current")
        return
    fi
    local command=${COMP_WORDS[1]}
    if [ "$command" = run ]; then
        # "=" is a word of its own for bash; --flag=value is completed as --flag value.
        local i=2
        while [ "$i" -lt "$COMP_CWORD" ]; do
            case ${COMP_WORDS[i]} in
            --) i=$((i + 1)) && break ;;
            --help) i=$((i + 1)) ;;
            -*) i=$((i + 2)) && [ "${COMP_WORDS[i - 1]}" = "=" ] && i=$((i + 1)) ;;
            *) break ;;
            esac
        done
        if [ "$i" -lt "$COMP_CWORD" ] || { [ "$i" -eq "$COMP_CWORD" ] && [[ $current != -* ]]; }; then
            if declare -F _command_offset >/dev/null; then
                _command_offset "$i"
            elif [ "$i" -eq "$COMP_CWORD" ]; then
                mapfile -t COMPREPLY < <(compgen -c -- "$current")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$current")
            fi
            return
        fi
    fi
    if [ "$current" = "=" ]; then
        current=
    elif [ "$previous" = "=" ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [ "$command" = port ]; then
        case $previous in
        --device)
            mapfile -t COMPREPLY < <(compgen -W "$(echo mlx5_{0..7})" -- "$current")
            return
            ;;
        --port)
            mapfile -t COMPREPLY < <(compgen -W "1 2" -- "$current")
            return
            ;;
        gid)
            mapfile -t COMPREPLY < <(compgen -W "add remove" -- "$current")
            return
            ;;
        esac
        if [[ $current != -* ]] && [ "$previous" != --fabric ]; then
            mapfile -t COMPREPLY < <(compgen -W "status down up gid" -- "$current")
            return
        fi
    fi
    case $previous in
    --uar | --engine | --memory | --memlock | --lost-peer | --port | --device | --log | --fabric)
        mapfile -t COMPREPLY < <(compgen -W "$(_softhca_values "$previous")" -- "$current")
        ;;
    --directory) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    --log-file | --record) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    --interval | --record-limit | --devices | --ports | --numa | --address) ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$(_softhca_options "$command")" -- "$current") ;;
    esac
}

complete -F _softhca softhca
