git init -q first
cd first
git config user.name body
git config user.email body@sandbox.invalid
cp ../text .
git add text
git commit -qm one
cd ..
git clone -q first second
cd second
git config user.name body
git config user.email body@sandbox.invalid
echo more >>text
git commit -qam two
git gc -q
git fsck --no-progress
git push -q origin HEAD:refs/heads/second
git log --format=%s
git -C ../first log --format=%s second
