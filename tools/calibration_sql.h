/*
 * The two workloads of a calibration, in SQL that Firebird 3 to 6 understand: one to learn from,
 * one to verify with, which shares no routine, line or text with it.
 *
 * Here and there they pass a gate: they take the next number of the sequence GATE and update that
 * row of the table GATES.  Whoever has locked the row holds them there; the session's context
 * variable GATE has the number.
 */
#ifndef FBPROF_CALIBRATION_SQL_H
#define FBPROF_CALIBRATION_SQL_H

struct calibration_workload {
	const char *const *definitions; /* ended by NULL, each to be committed */
	const char *const *statements;	/* what is run; ended by NULL, committed at the end */
};

extern const struct calibration_workload calibration_learning, calibration_verifying;

#endif
