# leat.fish: completion of leat's commands and options for fish.

set -l commands run view compare bench check help

complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a run -d "run a training and say what each step's time goes to"
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a view -d 'print the report of a run again'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a compare -d 'say whether a second run is faster, slower or the same'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a bench -d 'measure a loader and recommend settings'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a check -d 'say what leat can measure on this machine'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -a help -d 'the overview, or the help of one command'
complete -c leat -f -n "not __fish_seen_subcommand_from $commands" -s V -l version -d 'print the version'
complete -c leat -f -s h -l help -d 'options and examples'

complete -c leat -f -n '__fish_seen_subcommand_from help' -a "$commands"

complete -c leat -n '__fish_seen_subcommand_from run' -l run-name -x -d 'name of the run'
complete -c leat -n '__fish_seen_subcommand_from run' -l logs-dir -x -a '(__fish_complete_directories)' -d 'where the folder of the run goes'
complete -c leat -n '__fish_seen_subcommand_from run' -l max-steps -x -d 'record the first steps only'
complete -c leat -n '__fish_seen_subcommand_from run' -l no-probe -d 'do not count CUDA calls'
complete -c leat -n '__fish_seen_subcommand_from run' -s q -l quiet -d 'print no report; only write the files'
complete -c leat -n '__fish_seen_subcommand_from run view compare bench check' -l json -d 'print JSON'
complete -c leat -n '__fish_seen_subcommand_from compare' -l threshold -x -d 'smallest change that counts, such as 3%'
complete -c leat -n '__fish_seen_subcommand_from compare' -l fail-on -x -a 'regression mixed' -d 'exit with 3 on this result'
complete -c leat -n '__fish_seen_subcommand_from view' -l fail-on -x -a 'info warning critical' -d 'exit with 3 on a finding of this severity'
complete -c leat -n '__fish_seen_subcommand_from check' -l python -r -d 'check this Python'
complete -c leat -n '__fish_seen_subcommand_from bench' -l batch-size -x -d 'measure these batch sizes too'
complete -c leat -n '__fish_seen_subcommand_from bench' -l memory -x -d 'limit for the process and its workers, such as 8G'
complete -c leat -n '__fish_seen_subcommand_from bench' -l max-workers -x -d 'try at most this many workers'
complete -c leat -n '__fish_seen_subcommand_from bench' -l time -x -d 'end the search after this many seconds'
complete -c leat -n '__fish_seen_subcommand_from bench' -l timeout -x -d 'without a batch for this many seconds, it hangs'
complete -c leat -n '__fish_seen_subcommand_from bench' -l loader -x -d 'measure the n-th loader of the script'
complete -c leat -n '__fish_seen_subcommand_from bench' -s q -l quiet -d 'hide the output of the script'
