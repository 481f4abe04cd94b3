# leat.fish: completion of leat's commands and options for fish.

set -l commands run view compare bench check help

complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a run -d "run a training and say what each step's time goes to"
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a view -d 'print the report of a run again'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a compare -d 'say whether a second run is faster, slower or the same'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a bench -d 'measure a loader and say which settings win'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a check -d 'what this machine lets leat see'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a help -d 'the overview, or the help of one command'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -s V -l version -d 'print the version'
complete -c leat -f -s h -l help -d 'options and examples'

complete -c leat -f -n '__fish_seen_subcommand_from help' -a "$commands"

complete -c leat -n '__fish_seen_subcommand_from run' -l run-name -x -d 'name of the run'
complete -c leat -n '__fish_seen_subcommand_from run' -l logs-dir -x -a '(__fish_complete_directories)' -d 'where the folder of the run goes'
complete -c leat -n '__fish_seen_subcommand_from run' -l max-steps -x -d 'record the first steps only'
complete -c leat -n '__fish_seen_subcommand_from run' -l no-probe -d 'do not count calls of CUDA'
complete -c leat -n '__fish_seen_subcommand_from run' -s q -l quiet -d 'print nothing; only write the files'
complete -c leat -n '__fish_seen_subcommand_from run view compare bench check' -l json -d 'print JSON'
complete -c leat -n '__fish_seen_subcommand_from compare' -l threshold -x -d 'smallest change that counts, such as 3%'
complete -c leat -n '__fish_seen_subcommand_from compare' -l fail-on -x -a 'regression mixed' -d 'exit with 3 on this result'
complete -c leat -n '__fish_seen_subcommand_from view' -l fail-on -x -a 'info warning critical' -d 'exit with 3 on a finding of this severity'
complete -c leat -n '__fish_seen_subcommand_from check' -l python -r -d 'check this Python'
complete -c leat -n '__fish_seen_subcommand_from bench' -l batch-size -x -d 'measure these batch sizes too'
complete -c leat -n '__fish_seen_subcommand_from bench' -l memory -x -d 'most memory of process and workers, such as 8G'
complete -c leat -n '__fish_seen_subcommand_from bench' -l max-workers -x -d 'try no more workers'
complete -c leat -n '__fish_seen_subcommand_from bench' -l time -x -d 'end the search after so many seconds'
complete -c leat -n '__fish_seen_subcommand_from bench' -l timeout -x -d 'so many seconds without a batch are a hang'
complete -c leat -n '__fish_seen_subcommand_from bench' -l loader -x -d 'the n-th loader that is iterated over'
complete -c leat -n '__fish_seen_subcommand_from bench' -s q -l quiet -d 'silence the script'
