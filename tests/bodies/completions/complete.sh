# Completes the last word as bash does on TAB. Arguments: the file of completions, then the words after
# the program's name.
# shellcheck source=/dev/null # made by the test
source "$1"
shift
COMP_WORDS=(runner "$@")
COMP_CWORD=$#
complete -p runner > /dev/null || exit
_runner runner "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
echo "${COMPREPLY[@]}"
