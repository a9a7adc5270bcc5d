"""What a plan takes before it runs: on this machine, or compiled for devices of another one."""
