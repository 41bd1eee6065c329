#!/bin/bash
# A Slurm of one node in namespaces of its own, of which this shell is process 1: everything ends with it. The
# working directory becomes that of its files. The argument is how slurmd tracks the processes of a job.
set -eu
tracking=$1 files=$PWD

if [ "${2-}" != daemons ]; then
    hostname node
    # Names are looked up only where there is an address besides that of the loopback interface.
    ip link set lo up
    ip link add wire type bridge
    ip link set wire up
    ip addr add 10.77.0.1/24 dev wire
    { cat /etc/hosts; echo 10.77.0.1 node; } >hosts
    mount --bind hosts /etc/hosts
    if [ "$(id -u)" -ne 0 ]; then
        # Slurm looks up the users of jobs, and this one may have no account.
        { grep -v ":x:$(id -u):" /etc/passwd; echo "job:x:$(id -u):$(id -g)::$files:/bin/sh"; } >passwd
        mount --bind passwd /etc/passwd
        exec setpriv --inh-caps=-all --ambient-caps=-all bash "$0" "$tracking" daemons
    fi
fi

mkdir -m 0700 munge state
mkdir -m 0755 socket spool
(umask 077 && head -c 128 /dev/urandom >munge/key)
cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=node(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$files/socket/munge
StateSaveLocation=$files/state
SlurmdSpoolDir=$files/spool
SlurmctldPidFile=$files/slurmctld.pid
SlurmdPidFile=$files/slurmd.pid
SlurmctldLogFile=$files/slurmctld.log
SlurmdLogFile=$files/slurmd.log
ProctrackType=proctrack/$tracking
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
KillWait=10
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
NodeName=node NodeAddr=127.0.0.1 CPUs=8
PartitionName=test Nodes=node Default=YES MaxTime=60
END
export SLURM_CONF=$files/slurm.conf

# Forced: it is no daemon of the system, and /tmp may belong to a user that it does not see.
munged --foreground --force --socket="$files/socket/munge" --key-file="$files/munge/key" \
    --pid-file="$files/munge/pid" --seed-file="$files/munge/seed" --log-file="$files/munge/log" 2>munge.log &
until [ -S socket/munge ]; do sleep 0.05; done
slurmctld -D -i >slurmctld.out 2>&1 &
slurmd -D -N node >slurmd.out 2>&1 &
until sinfo -h -o %T 2>/dev/null | grep -qx idle; do sleep 0.05; done
touch ready
# Reaps what jobs leave to it.
wait
