# leat.bash: completion of leat's commands and options for bash.

_leat() {
    local cur prev command i
    cur=${COMP_WORDS[COMP_CWORD]}
    prev=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W 'run view compare bench check help --help --version' -- "$cur")
        return
    fi
    command=${COMP_WORDS[1]}
    case $prev in
    --logs-dir)
        compopt -o dirnames
        return
        ;;
    --python)
        compopt -o default
        return
        ;;
    --run-name | --max-steps | --threshold | --time | --timeout | --memory | --batch-size | \
        --max-workers | --loader)
        return
        ;;
    --fail-on)
        mapfile -t COMPREPLY < <(compgen -W "$(_leat_levels "$command")" -- "$cur")
        return
        ;;
    esac
    case $command in
    run | bench)
        # After the name of the script, words are its arguments.
        for ((i = 2; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            --run-name | --logs-dir | --max-steps) i=$((i + 1)) ;;
            --time | --timeout | --memory | --batch-size | --max-workers | --loader) i=$((i + 1)) ;;
            --) ;;
            -*) ;;
            *)
                compopt -o default
                return
                ;;
            esac
        done
        if [[ $cur == -* && $command == bench ]]; then
            mapfile -t COMPREPLY < <(compgen -W '--batch-size --memory --max-workers --time --timeout --loader --json --quiet --help --' -- "$cur")
        elif [[ $cur == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W '--run-name --logs-dir --max-steps --no-probe --json --quiet --help --' -- "$cur")
        else
            mapfile -t COMPREPLY < <(compgen -c -- "$cur" | sort -u)
            compopt -o default
        fi
        ;;
    view)
        _leat_options_or_files '--json --fail-on --help' "$cur"
        ;;
    compare)
        _leat_options_or_files '--json --threshold --fail-on --help' "$cur"
        ;;
    check)
        mapfile -t COMPREPLY < <(compgen -W '--json --python --help' -- "$cur")
        ;;
    help)
        mapfile -t COMPREPLY < <(compgen -W 'run view compare bench check help' -- "$cur")
        ;;
    esac
}

_leat_levels() {
    case $1 in
    view) echo info warning critical ;;
    compare) echo regression mixed ;;
    esac
}

_leat_options_or_files() {
    if [[ $2 == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
    else
        compopt -o default
    fi
}

complete -F _leat leat
