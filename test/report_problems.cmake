# Fails with the list `problems`, one per line, unless it is empty.
macro(report_problems check)
  if(problems)
    list(JOIN problems "\n" report)
    message(NOTICE "${report}")
    message(FATAL_ERROR "${check}")
  endif()
endmacro()
