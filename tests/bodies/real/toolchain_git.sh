export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main one; cd one
for n in 1 2 3; do echo $n >file; git add .; git commit -qm "change $n"; done
git gc -q; git worktree add -q ../tree -b other; cd ..
git clone -q one two; cd two; git fsck 2>/dev/null; git log --format=%s; git -C ../tree status -sb
echo 4 >file; git stash -q; git stash pop -q; git commit -qam 'change 4'; git push -q origin HEAD:refs/heads/new
git -C ../one branch --list new
