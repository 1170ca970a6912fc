/** Sluicegate in applications of Spring Boot. */
package io.sluicegate.spring;
