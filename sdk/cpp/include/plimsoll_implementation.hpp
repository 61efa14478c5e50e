/** The C library itself, for a program that does not link it: included in exactly one source file, which best holds nothing else. `../../c/include` and `../../c/src` have to be on the include path. */
#pragma once

#ifndef _GNU_SOURCE
#error "the library needs _GNU_SOURCE before the first header of the system; g++ and clang++ define it"
#endif

extern "C" {
#include <account.c>
#include <action.c>
#include <app.c>
#include <cancel.c>
#include <clock.c>
#include <control.c>
#include <directory.c>
#include <file.c>
#include <handles.c>
#include <lane.c>
#include <pool.c>
#include <protocol.c>
#include <rerun.c>
#include <resource.c>
#include <say.c>
#include <task.c>
#include <text.c>
}
