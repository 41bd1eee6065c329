words=(c a b); paste -sd, <(printf '%s\n' "${words[@]}" | sort)
mkfifo pipe; (seq 1000 >pipe &); wc -l <pipe
sleep 60 & kill %1; wait %1 || echo "ended by $(($? - 128))"
seq 9 >a; cp -a a b; touch -d yesterday b; ln b c; tar -cJf d.tar.xz a b c; tar -tf d.tar.xz | wc -l
find . -newer b -name a; nice true; timeout 9 true; flock a true; df . >e; sync a
